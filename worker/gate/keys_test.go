package gate

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/worker/internal/budget"
)

// twoKeys are keys of one API, of which each has its own answers.
var twoKeys = []Credential{{Name: "main", Key: "sk-main-0123456789"}, {Name: "spare", Key: "sk-spare-0123456789"}}

// byKey answers by the key of a request, and counts the calls of a model with each.
type byKey struct {
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
	asked   map[string]int
}

func (b *byKey) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.Split(r.Header.Get("X-Api-Key"), "-")[1]
	b.mu.Lock()
	if b.asked == nil {
		b.asked = map[string]int{}
	}
	if r.Method == http.MethodPost {
		b.asked[key]++
	}
	f := b.answers[key]
	b.mu.Unlock()
	if f == nil {
		f = stream(start, text, delta, stop)
	}
	f(w, r)
}

func (b *byKey) set(key string, f http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers, b.asked = map[string]http.HandlerFunc{key: f}, nil
}

func (b *byKey) calls(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[key]
}

// A session goes on with another key when the provider refuses its own one, has enough of it for hours, or does not
// let it use the model. Its agent gets the answer, and is told nothing.
func TestASessionGoesOnWithAnotherKey(t *testing.T) {
	t.Parallel()
	const noModel = `{"type":"error","error":{"type":"permission_error","message":"not this model"}}`
	for name, refusal := range map[string]http.HandlerFunc{
		"unauthorized": fails(99, 401, noKey),
		"forbidden":    fails(99, 403, `{"type":"error","error":{"type":"authentication_error","message":"disabled"}}`),
		"no model":     fails(99, 403, noModel),
		"no credit":    fails(99, 400, `{"type":"error","error":{"type":"billing_error","message":"Your credit balance is too low"}}`),
		"limited":      fails(99, 429, tooMany, "Retry-After", "7200"),
		"not again":    fails(99, 429, tooMany, "Retry-After", "7200", "X-Should-Retry", "false"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &byKey{}
			r := newRig(t, Config{Govern: true, Keys: twoKeys}, Limits{}, b.ServeHTTP)
			var moved []string
			r.session.Moved = func(from, to string) { moved = append(moved, from+" "+to) }
			if status, body := r.messages(); status != 200 || !strings.Contains(body, "message_stop") {
				t.Fatalf("got %d %s", status, body)
			}
			first, other := "main", "spare"
			if b.calls(first) == 0 {
				first, other = other, first
			}
			b.set(first, refusal)
			for range 3 {
				if status, body := r.messages(); status != 200 || !strings.Contains(body, "message_stop") {
					t.Fatalf("got %d %s", status, body)
				}
			}
			if b.calls(first) != 1 || b.calls(other) != 3 {
				t.Errorf("%d calls with the key that is refused, %d with the other", b.calls(first), b.calls(other))
			}
			if !slices.Equal(moved, []string{first + " " + other}) {
				t.Errorf("told %q", moved)
			}
			if h := r.session.Hold(); h != nil {
				t.Errorf("held: %v", h)
			}
		})
	}
}

// A model that no key may use is refused as the provider does it.
func TestNoKeyMayUseAModel(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Govern: true, Keys: twoKeys}, Limits{}, fails(99, 403, `{"type":"error","error":{"type":"permission_error","message":"nobody may"}}`))
	for range 2 {
		if status, body := r.messages(); status != 403 || !strings.Contains(body, "nobody may") {
			t.Errorf("got %d %s", status, body)
		}
	}
	if n := r.sent(); n != 3 {
		t.Errorf("%d calls, want one with each key, and one that is passed on", n)
	}
}

// Keys are used by the queues that they name; one that names none, by all others.
func TestKeysOfQueues(t *testing.T) {
	t.Parallel()
	key := func(name string, queues ...string) Credential {
		return Credential{Name: name, Key: Key("sk-" + name), Queues: queues}
	}
	g, err := New(Config{Govern: true, Keys: []Credential{key("common"), key("science", "research", "lab"), key("all", "*")}})
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]string{"default": "all common", "research": "science all", "lab": "science all"} {
		if got := strings.Join(g.KeyNames(queue), " "); got != want {
			t.Errorf("queue %s uses %q, want %q", queue, got, want)
		}
	}
	only, err := New(Config{Govern: true, Keys: []Credential{key("science", "research")}})
	if err != nil {
		t.Fatal(err)
	}
	if only.Serves("default") || !only.Serves("research") {
		t.Error("a queue without a key is served")
	}
	if err := errors.Join(g.Close(), only.Close()); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][]Credential{{key("a"), {Name: "b", Key: "sk-a"}}, {{Name: "a"}}, {{Name: "a", Key: "two words"}}} {
		if _, err := New(Config{Govern: true, Keys: wrong}); err == nil || strings.Contains(err.Error(), "sk-a") || strings.Contains(err.Error(), "two words") {
			t.Errorf("%d keys: %v", len(wrong), err)
		}
	}
}

// spentPurse has nothing left after a number of calls.
type spentPurse struct {
	mu    sync.Mutex
	calls int
}

func (p *spentPurse) Name() string { return "key:main=1/day" }

func (p *spentPurse) Left(context.Context) (budget.Amount, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == 0 {
		return budget.Amount{}, budget.ErrSpent
	}
	return budget.Amount{USD: 1000}, nil
}

func (p *spentPurse) Nearly() bool { return false }

func (p *spentPurse) Settle(used budget.Amount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if used.Tokens > 0 {
		p.calls--
	}
}

// When the budget of a key is spent, another one is used; when those of all are, the session ends.
func TestTheBudgetOfAKey(t *testing.T) {
	t.Parallel()
	b := &byKey{}
	main, spare := &spentPurse{calls: 2}, &spentPurse{calls: 3}
	r := newRig(t, Config{Govern: true, Keys: twoKeys}, Limits{Keyed: map[string][]Purse{"main": {main}, "spare": {spare}}}, b.ServeHTTP)
	for n := range 5 {
		if status, body := r.messages(); status != 200 {
			t.Fatalf("call %d: got %d %s", n, status, body)
		}
	}
	if b.calls("main") != 2 || b.calls("spare") != 3 || r.session.Exhausted() != nil {
		t.Errorf("calls %v, exhausted %v", b.asked, r.session.Exhausted())
	}
	if status, body := r.messages(); status != 400 || !strings.Contains(body, "budget") || r.sent() != 5 {
		t.Errorf("got %d %s after %d calls", status, body, r.sent())
	}
	if p := r.session.Exhausted(); p != Purse(main) && p != Purse(spare) {
		t.Errorf("exhausted: %v", p)
	}
}
