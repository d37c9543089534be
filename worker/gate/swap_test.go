package gate

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/internal/budget"
)

// use replaces the keys of the gate.
func (r *rig) use(keys ...Credential) {
	r.t.Helper()
	use, err := r.gate.Prepare(keys)
	if err != nil {
		r.t.Fatal(err)
	}
	use()
}

// spare is the key that stays in these tests.
var spare = Credential{Name: "spare", Key: "sk-spare-0123456789"}

// numbered are keys of one name with different secrets.
func numbered(n int) Credential {
	return Credential{Name: "main", Key: Key(fmt.Sprintf("sk-%d-0123456789", n))}
}

// number is that of a key; the one that stays has none.
func number(r *http.Request) (int, bool) {
	n, err := strconv.Atoi(strings.Split(r.Header.Get("X-Api-Key"), "-")[1])
	return n, err == nil
}

// While keys are replaced all the time, each request has one that was there when it was made: none that had been removed
// before, and none that is not there yet. No request fails.
func TestKeysAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	var coming, used, calls, spares atomic.Int64
	r := newRig(t, Config{Govern: true, Keys: []Credential{numbered(0), spare}}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		calls.Add(1)
		before, _ := strconv.ParseInt(req.Header.Get("Anthropic-Beta"), 10, 64)
		n, ok := number(req)
		switch {
		case !ok:
			spares.Add(1)
		case int64(n) < before || int64(n) > coming.Load():
			t.Errorf("a request that began with key %d there has key %d", before, n)
		}
		stream(start, text, delta, stop)(w, req)
	})
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status, body, _ := r.do("POST", "/v1/messages", hello, "Anthropic-Beta", strconv.FormatInt(used.Load(), 10)); status != 200 || !strings.Contains(body, "message_stop") {
					t.Errorf("got %d %s", status, body)
				}
			}
		})
	}
	for n := 1; n <= 100; n++ {
		coming.Store(int64(n))
		if n%2 == 0 {
			r.use(spare, numbered(n))
		} else {
			r.use(numbered(n))
		}
		used.Store(int64(n))
		eventually(t, "requests go on", func() bool { before := calls.Load(); time.Sleep(time.Millisecond); return calls.Load() > before })
	}
	close(stop)
	load.Wait()
	if _, failed := r.session.Hold(), r.session.Failing(); failed.Row > 0 || spares.Load() == 0 {
		t.Errorf("failing %+v, %d calls with the other key", failed, spares.Load())
	}
}

// A request ends with the key that it began with; the next one of its session has the new one.
func TestARequestEndsWithItsKey(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	var asked []int
	r := newRig(t, Config{Govern: true, Keys: []Credential{numbered(1)}}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		n, _ := number(req)
		asked = append(asked, n)
		if n == 1 {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			close(began)
			<-end
		}
		stream(start, text, "data: {\"key\":\"sk-1-0123456789 sk-2-0123456789\"}\n\n", delta, stop)(w, req)
	})
	moved := false
	r.session.Moved = func(string, string) { moved = true }
	first := make(chan string)
	go func() {
		_, body := r.messages()
		first <- body
	}()
	<-began
	r.use(numbered(2))
	close(end)
	if body := <-first; !strings.Contains(body, "message_stop") || strings.Contains(body, "sk-1-") {
		t.Errorf("the first request got %s", body)
	}
	if status, body := r.messages(); status != 200 || strings.Contains(body, "sk-2-") {
		t.Errorf("the second request got %d %s", status, body)
	}
	if !slices.Equal(asked, []int{1, 2}) {
		t.Errorf("asked with keys %v", asked)
	}
	if moved {
		t.Error("the agent was told of another key, and it has the same name")
	}
}

// A key that stays is still refused, whatever happens to the others; sessions that left it do not come back.
func TestAKeyThatStaysIsStillRefused(t *testing.T) {
	t.Parallel()
	b := &byKey{}
	r := newRig(t, Config{Govern: true, Keys: twoKeys}, Limits{}, b.ServeHTTP)
	b.set("spare", fails(99, 401, noKey))
	for range 4 {
		r.messages()
		r.session.choice.move(r.gate.Governors("")[1]) // to the one that is refused, sooner or later
	}
	refused := b.calls("spare")
	if g := r.gate.Governors("")[1]; refused == 0 || !g.Standing().Refused {
		t.Fatalf("%d calls with the key that is refused", refused)
	}
	r.use(Credential{Name: "third", Key: "sk-third-0123456789"}, Credential{Name: "renamed", Key: twoKeys[1].Key, Weight: 1000})
	if g := r.gate.Governors("")[1]; !g.Standing().Refused || g.Name() != "renamed" {
		t.Errorf("key %s is accepted", g.Name())
	}
	for range 8 {
		if status, body := r.messages(); status != 200 {
			t.Fatalf("got %d %s", status, body)
		}
	}
	if b.calls("spare") != refused || b.calls("third") != 8 {
		t.Errorf("%d more calls with the refused key, %d with the new one", b.calls("spare")-refused, b.calls("third"))
	}
	if _, err := r.gate.Prepare([]Credential{numbered(1), numbered(1)}); err == nil {
		t.Error("the same key may be there twice")
	}
	if r.messages(); b.calls("third") != 9 {
		t.Error("wrong keys have replaced others")
	}
}

// A call that waits for a key goes on with a new one at once. It does not get the key that it waited for, which was removed.
func TestACallThatWaitsGetsTheNewKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Govern: true, Keys: []Credential{numbered(1)}, Patience: time.Minute}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		if n, _ := number(req); n == 1 {
			fails(99, 429, tooMany, "Retry-After", "20")(w, req)
			return
		}
		stream(start, text, delta, stop)(w, req)
	})
	answered := make(chan int)
	begin := time.Now()
	go func() {
		status, _ := r.messages()
		answered <- status
	}()
	eventually(t, "the call waits", func() bool { return r.gate.Governors("")[0].Standing().Waiting == 1 })
	r.use(numbered(2))
	if status := <-answered; status != 200 || r.sent() != 2 || time.Since(begin) > 15*time.Second {
		t.Errorf("got %d after %d requests and %v", status, r.sent(), time.Since(begin))
	}
}

// A swapping is a budget that has the keys replaced when a call asks what is left of it.
type swapping struct {
	spentPurse
	once sync.Once
	swap func()
}

func (s *swapping) Left(context.Context) (budget.Amount, error) {
	s.once.Do(s.swap)
	return budget.Amount{USD: 1000}, nil
}

// A call whose key is removed after it was chosen, and before the call is sent, is made with another one.
func TestAKeyThatIsRemovedBeforeTheCall(t *testing.T) {
	t.Parallel()
	var with atomic.Int64
	p := &swapping{}
	r := newRig(t, Config{Govern: true, Keys: []Credential{numbered(1)}}, Limits{Keyed: map[string][]Purse{"main": {p}}}, func(w http.ResponseWriter, req *http.Request) {
		n, _ := number(req)
		with.Store(int64(n))
		stream(start, text, delta, stop)(w, req)
	})
	p.swap = func() { r.use(numbered(2)) }
	if status, _ := r.messages(); status != 200 || r.sent() != 1 || with.Load() != 2 {
		t.Errorf("got %d after %d requests, the last with key %d", status, r.sent(), with.Load())
	}
}

// Without any key a session is refused as with a wrong one, and goes on once there is one again. Queues are as the new keys say.
func TestAGateWithoutKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Govern: true, Keys: []Credential{numbered(1)}}, Limits{Queue: "lab"}, stream(start, text, delta, stop))
	for _, keys := range [][]Credential{{}, {{Name: "other", Key: "sk-other-0123456789", Queues: []string{"research"}}}} {
		r.use(keys...)
		if status, body := r.messages(); status != 401 || !strings.Contains(body, "authentication_error") || r.sent() != 0 {
			t.Errorf("with %d keys: got %d %s after %d requests", len(keys), status, body, r.sent())
		}
		if r.gate.Empty() != (len(keys) == 0) || r.gate.Serves("lab") || r.gate.Serves("research") == (len(keys) == 0) {
			t.Errorf("with %d keys: empty %v, serves lab %v", len(keys), r.gate.Empty(), r.gate.Serves("lab"))
		}
	}
	r.use(Credential{Name: "other", Key: "sk-other-0123456789", Queues: []string{"lab"}})
	if status, _ := r.messages(); status != 200 || r.sent() != 1 {
		t.Errorf("got %d after %d requests", status, r.sent())
	}
}
