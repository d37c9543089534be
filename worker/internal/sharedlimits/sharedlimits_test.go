package sharedlimits

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/governor"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A board is a store that can be away.
type board struct {
	mu    sync.Mutex
	away  bool
	state ratelimit.State
	wrote int
}

var errAway = errors.New("no broker")

func (b *board) set(away bool) { b.mu.Lock(); defer b.mu.Unlock(); b.away = away }

func (b *board) written() int { b.mu.Lock(); defer b.mu.Unlock(); return b.wrote }

func (b *board) is(ctx context.Context) bool {
	b.mu.Lock()
	away := b.away
	b.mu.Unlock()
	if away {
		<-ctx.Done()
	}
	return !away
}

func (b *board) Get(ctx context.Context, key string, now time.Time) (ratelimit.State, error) {
	if !b.is(ctx) {
		return ratelimit.State{}, errAway
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return ratelimit.State{Key: key}.Merge(b.state, now), nil
}

func (b *board) Put(ctx context.Context, mine ratelimit.State, now time.Time) (ratelimit.State, error) {
	if !b.is(ctx) {
		return mine, errAway
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrote++
	b.state = mine.Merge(b.state, now)
	return b.state, nil
}

func open(t *testing.T) *gate.Gate {
	t.Helper()
	g, err := gate.New(gate.Config{Key: "key", Govern: true})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// held is a call that is told to wait for so long.
func held(t *testing.T, g *gate.Gate, wait time.Duration) {
	t.Helper()
	pass, err := g.Governors("").Acquire(t.Context(), governor.Call{Model: "m", Arrived: time.Now(), Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	pass.Done("m", governor.Answer{Kind: governor.Limited, Wait: wait})
}

// What one worker hears the jobs of all wait for, also when the broker was away when it heard it; short
// waits are each worker's own.
func TestWorkersHearOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, other := &board{}, open(t), open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var sharing sync.WaitGroup
		var standing atomic.Pointer[gate.Standing]
		sharing.Go(func() {
			Share(ctx, b, map[string]*gate.Gate{"anthropic": one}, func(_ string, now gate.Standing) { standing.Store(&now) })
		})
		defer sharing.Wait()
		defer cancel()
		held(t, one, 2*time.Second)
		time.Sleep(10 * time.Second)
		if n := b.written(); n != 0 {
			t.Errorf("a short wait was told %d times", n)
		}
		b.set(true)
		held(t, one, 2*time.Hour)
		time.Sleep(time.Minute)
		if err := Admit(t.Context(), b, other, "", "m"); err != nil {
			t.Errorf("without the broker: %v", err)
		}
		b.set(false)
		time.Sleep(10 * time.Second)
		err := Admit(t.Context(), b, other, "", "m")
		ended, ok := errors.AsType[*verdict.EndedError](err)
		if !ok || ended.Reason != jobs.QuotaWaiting || ended.Outcome != jobs.Error || ended.Wait < 118*time.Minute || ended.Wait > 2*time.Hour {
			t.Errorf("err %v", err)
		}
		if now := standing.Load(); now.Held < time.Hour || now.Refused {
			t.Errorf("standing %+v", now)
		}
		if n := b.written(); n > 2 {
			t.Errorf("one wait was told %d times", n)
		}
		one.Governors("")[0].Refuse("status 401") // what Admit says, too
		time.Sleep(2 * time.Second)
		err = Admit(t.Context(), b, other, "", "haiku")
		if ended, ok := errors.AsType[*verdict.EndedError](err); !ok || ended.Reason != jobs.KeyRefused || ended.Wait > time.Minute {
			t.Errorf("err %v", err)
		}
		time.Sleep(time.Minute) // the first job tries the key, on any worker
		if err := Admit(t.Context(), b, one, "", "haiku"); err != nil {
			t.Errorf("the job that tries: %v", err)
		}
		if err := Admit(t.Context(), b, other, "", "haiku"); err == nil {
			t.Error("two jobs try the key at once")
		}
		if err := errors.Join(Admit(t.Context(), b, nil, "", "m"), one.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	})
}

// How often a model is called whose calls were refused, the others hear now and then while it is, and once when it is
// not any more; of a model that takes all calls they hear nothing.
func TestWorkersTellHowTheyUseAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := &board{}, open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var sharing sync.WaitGroup
		sharing.Go(func() { Share(ctx, b, map[string]*gate.Gate{"anthropic": g}, nil) })
		use := func() ratelimit.Use {
			state, err := b.Get(ctx, g.Governors("")[0].ID(), time.Now())
			if err != nil || len(state.Uses["m"]) > 1 {
				t.Errorf("%+v, err %v", state, err)
			}
			for _, is := range state.Uses["m"] {
				return is
			}
			return ratelimit.Use{}
		}
		call := func() governor.Pass {
			pass, err := g.Governors("").Acquire(t.Context(), governor.Call{Model: "m", Arrived: time.Now(), Patience: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return pass
		}
		pass := call()
		time.Sleep(time.Minute + every/10) // so that no call ends when the state is told
		if n := b.written(); n != 0 {
			t.Errorf("without a refusal it was told %d times", n)
		}
		pass.Done("m", governor.Answer{Kind: governor.Limited, Wait: time.Second})
		for range 60 {
			pass = call()
			time.Sleep(time.Second)
			pass.Done("m", governor.Answer{Kind: governor.Served})
		}
		if n, is := b.written(), use(); n < 4 || n > 7 || is.Calls != 1 || is.Pace < 0.5 || is.Pace > 1.5 {
			t.Errorf("in a minute it was told %d times: %+v", n, is)
		}
		time.Sleep(10 * time.Second)
		n := b.written()
		if is := use(); is.Calls != 0 {
			t.Errorf("afterwards: %+v", is)
		}
		time.Sleep(time.Minute)
		if b.written() != n || use() != (ratelimit.Use{}) {
			t.Errorf("a minute later it was told %d times more: %+v", b.written()-n, use())
		}
		cancel()
		sharing.Wait()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A key that comes later is shared as the first ones are; one that is removed does not look as if it were still refused.
func TestKeysThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := &board{}, open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		standing := map[string]gate.Standing{}
		var sharing sync.WaitGroup
		sharing.Go(func() {
			Share(ctx, b, map[string]*gate.Gate{"anthropic": g}, func(_ string, now gate.Standing) {
				mu.Lock()
				defer mu.Unlock()
				standing[now.Key] = now
			})
		})
		refuse := func(key string) {
			t.Helper()
			before := b.written()
			g.Governors("")[0].Refuse("status 401")
			time.Sleep(10 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if b.written() == before || !standing[key].Refused {
				t.Errorf("key %q: told %d times, standing %+v", key, b.written()-before, standing[key])
			}
		}
		refuse("")
		for _, name := range []string{"main", "second"} {
			use, err := g.Prepare([]gate.Credential{{Name: name, Key: gate.Key("sk-" + name)}})
			if err != nil {
				t.Fatal(err)
			}
			use()
			time.Sleep(10 * time.Second)
			refuse(name)
		}
		cancel()
		sharing.Wait()
		if standing[""].Refused || standing["main"].Refused {
			t.Errorf("standing %+v", standing)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
