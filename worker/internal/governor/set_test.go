package governor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func keysOf(weights ...float64) Set {
	var all []Key
	for i, w := range weights {
		all = append(all, Key{ID: fmt.Sprintf("anthropic/%d", i), Name: string(rune('a' + i)), Weight: w})
	}
	return New(all...)
}

func call(t *testing.T, s Set, stay *Governor) Pass {
	t.Helper()
	pass, err := s.Acquire(t.Context(), Call{Model: "m", Arrived: time.Now(), Patience: time.Minute, Stay: stay})
	if err != nil {
		t.Fatal(err)
	}
	return pass
}

// Sessions are spread by the weights of the keys, and by what is left of each; each stays with its key.
func TestSessionsAreSpreadOverKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keysOf(3, 1)
		spread := func(sessions int) map[string]int {
			got := map[string]int{}
			for range sessions {
				first := call(t, s, nil)
				first.Done("m", Answer{Kind: Served})
				got[first.Of().Name()]++
				for range 3 {
					next := call(t, s, first.Of())
					next.Done("m", Answer{Kind: Served})
					if next.Of() != first.Of() {
						t.Errorf("a session went from key %s to %s", first.Of().Name(), next.Of().Name())
					}
				}
			}
			return got
		}
		if got := spread(40); got["a"] < 29 || got["a"] > 31 || got["a"]+got["b"] != 40 {
			t.Errorf("40 sessions, weights 3 and 1: %v", got)
		}
		pass := call(t, s, s[0])
		pass.Heard([]Room{{What: "tokens", Limit: 1e6, Left: 333_333, Full: time.Hour}}) // as much as b has
		pass.Done("m", Answer{Kind: Served})
		if got := spread(20); got["a"] < 1 || got["a"] > 10 {
			t.Errorf("20 sessions, with less than a third left of a: %v", got)
		}
	})
}

// A session whose key is held goes on with another one at once, also with a call that waited for it already; where all are held, the
// session is told of the soonest, and of all their names.
func TestAnotherKeyIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keysOf(1, 1)
		var under []Pass
		for range firstLimit {
			under = append(under, call(t, s, s[0]))
		}
		moved := make(chan Pass)
		begin := time.Now()
		go func() { moved <- call(t, s, s[0]) }() // all that may are under way
		synctest.Wait()
		select {
		case <-moved:
			t.Fatal("it does not wait for its key")
		default:
		}
		under[0].Done("m", Answer{Kind: Limited, Wait: 2 * time.Hour})
		if pass := <-moved; pass.Of() != s[1] || time.Since(begin) > time.Second {
			t.Errorf("after %v with key %s", time.Since(begin), pass.Of().Name())
		} else {
			pass.Done("m", Answer{Kind: Limited, Wait: time.Hour})
		}
		for _, pass := range under[1:] {
			pass.Done("m", Answer{})
		}
		for _, stay := range []*Governor{nil, s[0], s[1]} {
			_, err := s.Acquire(t.Context(), Call{Model: "m", Arrived: time.Now(), Patience: time.Minute, Stay: stay})
			h, ok := errors.AsType[*HeldError](err)
			if !ok || h.Key != "a, b" || h.Refused != "" || time.Until(h.Until) < time.Hour-time.Second || time.Until(h.Until) > time.Hour+time.Minute {
				t.Errorf("got %v", err)
			}
		}
		if s.Admit("m", time.Minute) == nil {
			t.Error("a job begins")
		}
		time.Sleep(time.Hour)
		if err := s.Admit("m", time.Minute); err != nil {
			t.Error(err)
		}
		if pass := call(t, s, s[0]); pass.Of() != s[1] {
			t.Errorf("with key %s", pass.Of().Name())
		}
	})
}

// A call waits for the key of its session for a while, and then for any.
func TestACallDoesNotWaitLongForItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keysOf(1, 1)
		for range firstLimit {
			call(t, s, s[0])
		}
		begin := time.Now()
		if pass := call(t, s, s[0]); pass.Of() != s[1] || time.Since(begin) != stay {
			t.Errorf("after %v with key %s", time.Since(begin), pass.Of().Name())
		}
	})
}

// While another key works, a refused one keeps nothing back, and is tried again by a call.
func TestAKeyOfSeveralIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keysOf(1, 1)
		s[0].Refuse("status 401")
		for range 3 {
			if pass := call(t, s, s[0]); pass.Of() != s[1] {
				t.Errorf("with key %s", pass.Of().Name())
			} else {
				pass.Done("m", Answer{Kind: Served})
			}
		}
		if err := s.Admit("m", time.Minute); err != nil || s.Refused() {
			t.Errorf("a job: %v", err)
		}
		s[1].Refuse("status 402")
		h, ok := errors.AsType[*HeldError](s.Admit("m", time.Minute))
		if _, err := s.Acquire(t.Context(), Call{Model: "m", Arrived: time.Now(), Patience: time.Hour}); !ok || h.Key != "a, b" || h.Refused == "" || err == nil || !s.Refused() {
			t.Errorf("both refused: %v, %v", h, err)
		}
		time.Sleep(firstPause)
		pass := call(t, s, nil)
		pass.Done("m", Answer{Kind: Served})
		if pass.Of().Standing().Refused {
			t.Errorf("key %s was accepted", pass.Of().Name())
		}
	})
}

// Whatever the keys answer, each call begins with one of them or is held, and none is counted twice.
func TestAnyAnswersOfSeveralKeys(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s := keysOf(1, 2, 3)
			var fleet sync.WaitGroup
			for n := range 40 {
				fleet.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(n)))
					var stay *Governor
					for range 20 {
						pass, err := s.Acquire(t.Context(), Call{Model: "m", Arrived: time.Now(), Patience: time.Minute, Stay: stay})
						if _, held := errors.AsType[*HeldError](err); err != nil && !held {
							t.Errorf("seed %d: %v", seed, err)
						}
						if err != nil {
							time.Sleep(time.Minute)
							continue
						}
						stay = pass.Of()
						time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
						a := Answer{Kind: Kind(random.IntN(4)), Wait: time.Duration(random.IntN(100)) * time.Second}
						if random.IntN(20) == 0 {
							a.Kind = Other
							pass.Of().Refuse("status 401")
						}
						pass.Done("m", a)
					}
				})
			}
			fleet.Wait()
			for _, g := range s {
				for _, q := range g.lines {
					if q.line.running != 0 || len(q.waiting) != 0 {
						t.Errorf("seed %d: key %s has %d calls under way, %d wait", seed, g.Name(), q.line.running, len(q.waiting))
					}
				}
			}
		})
	}
}

// Keys that stay keep what is known of them, with another name and weight; a call that waits for those of before ends its wait, and
// leaves nothing in their queues.
func TestKeysAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keysOf(1, 1)
		for _, g := range s {
			call(t, s, g).Done("m", Answer{Kind: Limited, Wait: 30 * time.Second})
		}
		s[0].Refuse("status 401")
		changed, waited := make(chan struct{}), make(chan error)
		begin := time.Now()
		go func() {
			_, err := s.Acquire(t.Context(), Call{Model: "m", Arrived: time.Now(), Patience: time.Minute, Changed: changed})
			waited <- err
		}()
		synctest.Wait()
		next := s.Next(Key{ID: "anthropic/new", Name: "new"}, Key{ID: s[0].ID(), Name: "renamed", Weight: 5})
		close(changed)
		if err := <-waited; !errors.Is(err, errChanged) || time.Since(begin) > 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		for _, g := range s {
			if g.Standing().Waiting > 0 {
				t.Errorf("a call waits for key %s", g.Name())
			}
		}
		if len(next) != 2 || next[1] != s[0] || next[1].Name() != "renamed" || next[1].key.Weight != 5 || !next[1].Standing().Refused {
			t.Errorf("the key that stays: %+v", next[1].Standing())
		}
		if now := next[0].Standing(); now.Refused || now.Held > 0 || next[0].key.Weight != 1 {
			t.Errorf("the new key: %+v", now)
		}
		for range 3 {
			if pass := call(t, next, s[1]); pass.Of() != next[0] {
				t.Errorf("a call has key %s", pass.Of().Name())
			}
		}
	})
}
