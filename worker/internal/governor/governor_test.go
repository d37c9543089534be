package governor

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stub is an API that all share.
type stub struct {
	mu sync.Mutex
	api
}

func (s *stub) call(now time.Time) (Answer, []Room) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.ask(now)
	if s.headers {
		return answer, []Room{s.left()}
	}
	return answer, nil
}

// single is the governor of an API's only key.
type single struct{ *Governor }

func alone(key string) single { return single{New(Key{ID: key})[0]} }

func (s single) Acquire(ctx context.Context, model string, arrived time.Time, patience time.Duration) (Pass, error) {
	return Set{s.Governor}.Acquire(ctx, Call{Model: model, Arrived: arrived, Patience: patience})
}

func (s single) Admit(model string, patience time.Duration) error {
	return Set{s.Governor}.Admit(model, patience)
}

// A hundred agents of two workers share one limit: nearly all of it is used, few calls are
// refused, and no agent gets much less than another.
func TestAFleetSharesALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{api: api{rate: 10, size: 20, after: true, at: time.Now()}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		served := make([]int, 100)
		warm := time.AfterFunc(3*time.Minute, func() {
			api.mu.Lock()
			defer api.mu.Unlock()
			api.asked, api.api.served = 0, 0
		})
		defer warm.Stop()
		workers := []single{alone("a"), alone("a")}
		var fleet sync.WaitGroup
		for i := range served {
			fleet.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond) // the agent works
					arrived := time.Now()
					for again := true; again && ctx.Err() == nil; {
						pass, err := workers[i%2].Acquire(ctx, "m", arrived, 4*time.Minute)
						if err != nil {
							break
						}
						answer, _ := api.call(time.Now())
						if again = answer.Kind != Served; !again {
							time.Sleep(2 * time.Second)
							served[i]++
						}
						pass.Done("m", answer)
					}
				}
			})
		}
		fleet.Wait()
		used, refused := float64(api.api.served)/(10*17*60), float64(api.asked-api.api.served)/float64(api.asked)
		t.Logf("%.1f %% used, %.1f %% refused; an agent made %d to %d calls", 100*used, 100*refused, slices.Min(served), slices.Max(served))
		if used < 0.9 || refused > 0.05 {
			t.Errorf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
		}
		if 3*slices.Min(served) < slices.Max(served) { // of the two workers one may have more
			t.Errorf("an agent made %d calls, and another %d", slices.Min(served), slices.Max(served))
		}
	})
}

// After "try again in two hours" nothing begins for two hours, at any worker; then all goes on, one after the other.
func TestAHoldOfTwoHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, other := alone("a"), alone("a")
		begin := time.Now()
		pass, err := g.Acquire(t.Context(), "opus-5", begin, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		waits, under := make(chan error), make(chan Pass, firstLimit)
		for range 20 {
			go func() {
				if pass, err := g.Acquire(t.Context(), "opus-5", time.Now(), time.Minute); err != nil {
					waits <- err
				} else {
					under <- pass
				}
			}()
		}
		synctest.Wait()
		pass.Done("opus-5", Answer{Kind: Limited, Wait: 2 * time.Hour})
		<-g.News()
		other.Import(g.Export())
		end := begin.Add(2 * time.Hour)
		seen := map[time.Time]bool{}
		held := func(err error) {
			t.Helper()
			h, ok := errors.AsType[*HeldError](err)
			if !ok || h.Until.Before(end) || h.Until.After(end.Add(maxStagger)) || seen[h.Until] || h.Refused != "" {
				t.Errorf("err %v, want a time of its own soon after %v", err, end)
			} else {
				seen[h.Until] = true
			}
		}
		for range 20 - (firstLimit - 1) {
			held(<-waits)
		}
		for range firstLimit - 1 {
			(<-under).Done("opus-5", Answer{Kind: Limited, Wait: time.Hour})
		}
		for at := range 12 {
			time.Sleep(10*time.Minute - time.Duration(at+1)/12*time.Second) // the last is a second before
			_, err := g.Acquire(t.Context(), "opus-5", time.Now(), 0)
			if h, ok := errors.AsType[*HeldError](err); !ok || h.Until.Before(end) {
				t.Errorf("after %v a call: %v", time.Since(begin), err)
			}
			if at == 11 {
				break // it is nearly over
			}
			for _, model := range []string{"", "opus", "opus-5"} {
				if g.Admit(model, time.Minute) == nil || other.Admit(model, time.Minute) == nil {
					t.Errorf("after %v a job with model %q may begin", time.Since(begin), model)
				}
			}
			if err := g.Admit("haiku", time.Minute); err != nil {
				t.Errorf("another model: %v", err)
			}
		}
		time.Sleep(time.Until(end))
		if err := errors.Join(g.Admit("opus", time.Minute), other.Admit("", time.Minute)); err != nil {
			t.Error(err)
		}
		for _, one := range []single{g, other} {
			pass, err := one.Acquire(t.Context(), "opus-5", time.Now(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			pass.Done("opus-5", Answer{Kind: Served})
		}
	})
}

// A key that is refused stops all jobs of all workers. One job tries it; when that is
// accepted, all go on.
func TestAKeyThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, other := alone("anthropic/abc"), alone("anthropic/abc")
		pass, err := g.Acquire(t.Context(), "m", time.Now(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		g.Refuse("status 401,\x1b[31m authentication_error")
		pass.Done("m", Answer{})
		if h, ok := errors.AsType[*HeldError](g.Admit("", time.Minute)); !ok || h.Refused != "status 401, [31m authentication_error" || h.Key != "anthropic/abc" {
			t.Errorf("got %+v", h)
		}
		sync := func() { other.Import(g.Export()); g.Import(other.Export()) }
		sync()
		for _, one := range []single{g, other} {
			if _, err := one.Acquire(t.Context(), "m", time.Now(), time.Hour); err == nil {
				t.Error("a call passes")
			}
			if err := one.Admit("m", time.Hour); err == nil {
				t.Error("a job begins")
			}
		}
		for n := range 3 { // in vain
			time.Sleep(time.Until(g.circuit.refused.Retry))
			if err := other.Admit("m", time.Hour); err != nil {
				t.Fatalf("the job that tries, for the %d. time: %v", n+1, err)
			}
			sync()
			if g.Admit("m", time.Hour) == nil || other.Admit("m", time.Hour) == nil {
				t.Error("two jobs try at once")
			}
			time.Sleep(time.Second)
			pass, err := other.Acquire(t.Context(), "m", time.Now(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			pass.Done("m", Answer{})
			before := time.Now()
			other.Refuse("status 401") // what is known
			sync()
			if pause := g.circuit.refused.Retry.Sub(before); pause != firstPause<<(n+1) {
				t.Errorf("left alone for %v the %d. time", pause, n+2)
			}
		}
		time.Sleep(time.Until(g.circuit.refused.Retry))
		if err := g.Admit("m", time.Hour); err != nil {
			t.Fatal(err)
		}
		sync()
		time.Sleep(time.Second)
		pass, err = g.Acquire(t.Context(), "m", time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		pass.Done("m", Answer{Kind: Served})
		sync()
		if err := errors.Join(g.Admit("m", time.Hour), other.Admit("m", time.Hour)); err != nil || g.Standing().Refused || other.Standing().Refused {
			t.Errorf("after the key was accepted: %v", err)
		}
	})
}

// Whatever answers say, no call begins that may not, and there is an end to each wait.
func TestAnyAnswers(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		l, now := NewLine(), epoch
		var began []time.Time
		any := func(most float64) float64 { return []float64{-1, 0, 1, most * random.Float64(), 1e300}[random.IntN(5)] }
		for range 500 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(time.Second)))
			wait := l.Wait(now)
			if wait < 0 || wait > mostHold || l.limit < 1 || l.limit > mostLimit || l.running != len(began) || float64(l.running) > mostLimit {
				t.Fatalf("seed %d: wait %v, limit %v, %d under way of %d", seed, wait, l.limit, l.running, len(began))
			}
			if l.until.After(now) && wait < l.until.Sub(now) {
				t.Fatalf("seed %d: a call begins in %v, and is held for %v", seed, wait, l.until.Sub(now))
			}
			switch random.IntN(5) {
			case 0, 1:
				if !l.Full() && wait == 0 {
					l.Begin(now, random.IntN(2) == 0)
					began = append(began, now)
				}
			case 2, 3:
				if n := len(began); n > 0 {
					l.End(now, began[n-1], Answer{Kind: Kind(random.IntN(4)), Wait: time.Duration(any(1e12))})
					began = began[:n-1]
				}
			case 4:
				l.Learn(now, Room{What: string(rune('a' + random.IntN(20))), Limit: any(100), Left: any(100), Full: time.Duration(any(1e12))})
			}
		}
		for _, b := range began {
			l.End(now, b, Answer{})
		}
		for n := 0; l.Wait(now) > 0 || l.Full(); n++ {
			if now = now.Add(l.Wait(now)); n > 50 {
				t.Fatalf("seed %d: after %d waits there is one of %v", seed, n, l.Wait(now))
			}
		}
	}
}

func TestWhatAnswersSay(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, c := range []struct {
		header http.Header
		body   string
		want   time.Duration
	}{
		{header("Retry-After", "7200"), "", 2 * time.Hour},
		{header("Retry-After", "0.5"), "", 500 * time.Millisecond},
		{header("Retry-After", "-5"), "", 0},
		{header("Retry-After", "soon"), "", 0},
		{header("Retry-After", "60", "Retry-After-Ms", "1500"), "", 1500 * time.Millisecond},
		{header("Retry-After", "Thu, 26 Nov 2026 12:01:30 GMT"), "", 90 * time.Second},
		{header("Retry-After", "Thu, 26 Nov 2026 12:01:30 GMT", "Date", "Thu, 26 Nov 2026 12:01:00 GMT"), "", 30 * time.Second},
		{header(), `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}`, 34500 * time.Millisecond},
		{header(), `{"error":{"type":"usage_limit_reached","resets_in_seconds":300}}`, 5 * time.Minute},
		{header(), `{"error":{"type":"usage_limit_reached","resets_at":1795694460}}`, time.Minute},
		{header(), `{"error":"no object"}`, 0},
		{header(), `nonsense`, 0},
	} {
		if got := Wait(c.header, []byte(c.body), epoch); got != c.want {
			t.Errorf("%v %s: %v, want %v", c.header, c.body, got, c.want)
		}
	}
	rooms := Rooms(header("Anthropic-Ratelimit-Requests-Limit", "50", "Anthropic-Ratelimit-Requests-Remaining", "20",
		"Anthropic-Ratelimit-Requests-Reset", "2026-11-26T12:00:36Z", "X-Ratelimit-Limit-Tokens", "1000", "X-Ratelimit-Remaining-Tokens", "10", "X-Ratelimit-Reset-Tokens", "6m0s"), epoch)
	want := []Room{{requests, 50, 20, 36 * time.Second}, {"tokens", 1000, 10, 6 * time.Minute}}
	if !slices.Equal(rooms, want) {
		t.Errorf("rooms %+v", rooms)
	}
	if rooms := Rooms(header("X-Ratelimit-Limit-Requests", "NaN", "X-Ratelimit-Remaining-Requests", "Inf"), epoch); len(rooms) != 0 {
		t.Errorf("of nonsense: %+v", rooms)
	}
}
