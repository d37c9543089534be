package ratelimit_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

func open(t *testing.T, s *jobstest.Server) ratelimit.Store {
	return ratelimit.Of(jobstest.Queue(t, jobstest.Connect(t, s.URL()), queue.Config{}).Workers())
}

const key = "anthropic/0123456789ab"

// What many workers have heard is all there, the longest hold of each model, also after the broker has
// restarted; what is over is not.
func TestWhatWorkersHaveHeardIsKept(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	store, now := open(t, s), time.Now().UTC().Truncate(time.Second)
	var telling sync.WaitGroup
	for n := range 8 {
		telling.Go(func() {
			mine := ratelimit.State{Key: key, Holds: map[string]time.Time{"opus": now.Add(time.Duration(n) * time.Hour), fmt.Sprint("model-", n): now.Add(time.Hour), "over": now}}
			if n == 3 {
				mine.Changed, mine.Refused = now, &ratelimit.Refusal{Message: "status 401", Since: now, Retry: now.Add(time.Minute)}
			}
			if _, err := store.Put(t.Context(), mine, now); err != nil {
				t.Error(err)
			}
		})
	}
	telling.Wait()
	s.Restart()
	store = open(t, s)
	got, err := store.Get(t.Context(), key, now)
	if err != nil || len(got.Holds) != 9 || !got.Holds["opus"].Equal(now.Add(7*time.Hour)) || got.Refused == nil || got.Refused.Message != "status 401" {
		t.Errorf("got %+v, err %v", got, err)
	}
	if got, err = store.Put(t.Context(), ratelimit.State{Key: key, Changed: now.Add(time.Second)}, now); err != nil || got.Refused != nil {
		t.Errorf("after the key was accepted: %+v, err %v", got, err)
	}
	if got, err := store.Get(t.Context(), "openai/0123456789ab", now); err != nil || len(got.Holds) != 0 {
		t.Errorf("another key has %+v, err %v", got, err)
	}
}

// How each worker uses a model is kept as it told last, for a while, and only so many are.
func TestUsesOfWorkers(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	uses := func(worker string, pace float64, at time.Time) ratelimit.State {
		return ratelimit.State{Key: key, Uses: map[string]map[string]ratelimit.Use{"m": {worker: {Pace: pace, Calls: 3, At: at}}}}
	}
	s := uses("a", 1, now).Merge(uses("b", 2, now.Add(-ratelimit.UseFor/2)), now).Merge(uses("a", 3, now.Add(-time.Second)), now).Merge(uses("c", 4, now.Add(-2*ratelimit.UseFor)), now)
	if of := s.Uses["m"]; len(of) != 2 || of["a"].Pace != 1 || of["b"].Pace != 2 {
		t.Errorf("uses %+v", of)
	}
	if !s.Equal(s.Merge(s, now)) || s.Equal(s.Merge(uses("a", 1, now.Add(time.Second)), now)) {
		t.Error("what is equal is taken for different, or the other way round")
	}
	if later := s.Merge(ratelimit.State{Key: key}, now.Add(ratelimit.UseFor)); len(later.Uses["m"]) != 1 {
		t.Errorf("later %+v", later.Uses)
	}
	many := ratelimit.State{Key: key}
	for n := range 2 * ratelimit.MaxUses {
		many = many.Merge(uses(fmt.Sprint(n), 1, now), now)
	}
	store := open(t, jobstest.Start(t))
	got, err := store.Put(t.Context(), many, now)
	if err == nil {
		got, err = store.Get(t.Context(), key, now)
	}
	if err != nil || len(got.Uses["m"]) != ratelimit.MaxUses {
		t.Errorf("%d of many workers are kept, err %v", len(got.Uses["m"]), err)
	}
}

// A state that makes no sense is as none, and the next change replaces it.
func TestStatesThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	nc := jobstest.Connect(t, s.URL())
	store, now := ratelimit.Of(jobstest.Queue(t, nc, queue.Config{}).Workers()), time.Now().UTC()
	js, err := nc.JetStream(nats.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	far, soon := now.Add(48*time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)
	many := `{"key":"` + key + `","holds":{"x":"` + soon + `"`
	for n := range 100 {
		many += fmt.Sprintf(`,"m%d":"%s"`, n, soon)
	}
	for name, data := range map[string]string{
		"no JSON": `{"key":`, "a list": `[]`, "another key": `{"key":"openai/x","holds":{"m":"` + soon + `"}}`,
		"for ever": `{"key":"` + key + `","holds":{"m":"` + far + `"}}`, "many models": many + `}}`,
		"a long name": `{"key":"` + key + `","holds":{"` + strings.Repeat("m", 300) + `":"` + soon + `"}}`,
		"the future":  `{"key":"` + key + `","changed":"` + far + `"}`,
		"an escape":   `{"key":"` + key + `","changed":"` + soon[:4] + `-01-01T00:00:00Z","refused":{"message":"\u001b[31m","retry":"` + soon + `"}}`,
		"a late try":  `{"key":"` + key + `","refused":{"message":"x","retry":"` + far + `"}}`,
		"no pace":     `{"key":"` + key + `","uses":{"m":{"w":{"pace":-1,"calls":1,"at":"` + now.Format(time.RFC3339) + `"}}}}`,
		"many calls":  `{"key":"` + key + `","uses":{"m":{"w":{"pace":1,"calls":10000000,"at":"` + now.Format(time.RFC3339) + `"}}}}`,
		"a later use": `{"key":"` + key + `","uses":{"m":{"w":{"pace":1,"calls":1,"at":"` + far + `"}}}}`,
		"much":        `{"key":"` + key + `","holds":{"m":"` + soon + `"},"x":"` + strings.Repeat("x", 100_000) + `"}`,
	} {
		if _, err := js.Publish(subject.Permit(jobs.HashKey("ratelimit", key)), []byte(data)); err != nil {
			t.Fatal(err)
		}
		got, err := store.Get(t.Context(), key, now)
		if err != nil || len(got.Holds) != 0 || got.Refused != nil || len(got.Uses) != 0 || got.Key != key {
			t.Errorf("%s: %+v, err %v", name, got, err)
		}
		if list, err := store.List(t.Context(), now); err != nil || len(list) != 0 {
			t.Errorf("%s: the list has %+v, err %v", name, list, err)
		}
	}
	mine := ratelimit.State{Key: key, Holds: map[string]time.Time{"m": now.Add(time.Hour)}}
	if _, err := store.Put(t.Context(), mine, now); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Get(t.Context(), key, now); err != nil || len(got.Holds) != 1 {
		t.Errorf("afterwards %+v, err %v", got, err)
	}
	if list, err := store.List(t.Context(), now); err != nil || len(list) != 1 || list[0].Key != key {
		t.Errorf("afterwards the list has %+v, err %v", list, err)
	}
}

// The name does not tell the key.
func TestNames(t *testing.T) {
	t.Parallel()
	a, b := ratelimit.Name("anthropic", "sk-secret"), ratelimit.Name("anthropic", "sk-secret2")
	if a == b || strings.Contains(a, "secret") || a != ratelimit.Name("anthropic", "sk-secret") || a == ratelimit.Name("openai", "sk-secret") || len(a) != len(key) {
		t.Errorf("names %s and %s", a, b)
	}
}
