// Package ratelimit keeps what the workers of a pool know together of the limits of model
// APIs: until when a model may not be called with a key, whether the key is refused, and how often each worker
// calls a model that the API throttles.
//
//	a worker hears "try again in two hours" ──▶ Put, by compare-and-set ──▶ broker ──▶ Get, by all others
//
// There is one small state for each key, under a digest of the key. It is in the bucket of
// the permits, which workers may write, and is forgotten a week after its last change. A
// state that cannot be believed is as none, and the next change replaces it.
package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/presence"
)

const (
	keptFor = 7 * 24 * time.Hour
	// MostHold is the longest hold that is believed.
	MostHold = 24 * time.Hour
	// MaxModels bounds the models that are held at once.
	MaxModels = 64
	// UseFor is how long a worker's use of a model counts after it was told.
	UseFor = 30 * time.Second
	// MaxUses bounds the uses that are kept. Workers beyond that go by what they hear themselves.
	MaxUses = 256
	mostUse = 1e6
	maxName = 256
	maxText = 500
	maxSize = 64 << 10
)

// A State is what is known of one key of a model API.
type State struct {
	Key string `json:"key"` // see Name
	// Holds says until when no call of a model begins.
	Holds map[string]time.Time `json:"holds,omitempty"`
	// Refused: the provider does not accept the key; nil: it does. Changed is when that
	// was last found out.
	Refused *Refusal  `json:"refused,omitempty"`
	Changed time.Time `json:"changed,omitzero"`
	// Uses says how workers use models of which calls were refused, by model and worker.
	Uses map[string]map[string]Use `json:"uses,omitempty"`
}

// A Use is how a worker uses a model.
type Use struct {
	Pace  float64   `json:"pace"`  // calls a second that may begin there
	Calls int       `json:"calls"` // that wait there, or are under way
	At    time.Time `json:"at"`
}

// A Refusal is why a key is not accepted.
type Refusal struct {
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Retry   time.Time `json:"retry"` // when one call tries whether it is accepted
	Tries   int       `json:"tries"` // that were in vain
}

// Name names a key: the API, and a digest that does not tell the key.
func Name(api, key string) string {
	sum := sha256.Sum256([]byte("penstock model key\x00" + api + "\x00" + key))
	return api + "/" + hex.EncodeToString(sum[:6])
}

// Merge returns what both states know together: the longer hold of each model, and the
// newer of what they say about the key and about each worker. Holds that are over are left out, and uses that are
// too old.
func (s State) Merge(other State, now time.Time) State {
	sum := State{Key: s.Key, Refused: s.Refused, Changed: s.Changed}
	if other.Changed.After(s.Changed) {
		sum.Refused, sum.Changed = other.Refused, other.Changed
	}
	for _, holds := range []map[string]time.Time{s.Holds, other.Holds} {
		for model, until := range holds {
			if !until.After(now) || !until.After(sum.Holds[model]) || len(sum.Holds) >= MaxModels && sum.Holds[model].IsZero() {
				continue
			}
			if sum.Holds == nil {
				sum.Holds = map[string]time.Time{}
			}
			sum.Holds[model] = until.UTC()
		}
	}
	sum.Uses = mergeUses(s.Uses, other.Uses, now)
	return sum
}

func mergeUses(a, b map[string]map[string]Use, now time.Time) map[string]map[string]Use {
	var sum map[string]map[string]Use
	kept := 0
	for _, uses := range []map[string]map[string]Use{a, b} {
		for model, of := range uses {
			for worker, use := range of {
				before, known := sum[model][worker]
				if now.Sub(use.At) > UseFor || !use.At.After(before.At) || !known && kept >= MaxUses {
					continue
				}
				if sum == nil {
					sum = map[string]map[string]Use{}
				}
				if sum[model] == nil {
					sum[model] = map[string]Use{}
				}
				if !known {
					kept++
				}
				use.At = use.At.UTC()
				sum[model][worker] = use
			}
		}
	}
	return sum
}

// Equal reports whether two states say the same.
func (s State) Equal(other State) bool {
	if s.Key != other.Key || !s.Changed.Equal(other.Changed) || (s.Refused == nil) != (other.Refused == nil) || len(s.Holds) != len(other.Holds) {
		return false
	}
	for model, until := range s.Holds {
		if !other.Holds[model].Equal(until) {
			return false
		}
	}
	same := maps.EqualFunc(s.Uses, other.Uses, func(a, b map[string]Use) bool { return maps.EqualFunc(a, b, Use.equal) })
	return same && (s.Refused == nil || s.Refused.Tries == other.Refused.Tries && s.Refused.Retry.Equal(other.Refused.Retry))
}

func (u Use) equal(other Use) bool {
	return u.Pace == other.Pace && u.Calls == other.Calls && u.At.Equal(other.At)
}

// check reports what cannot be believed of a state at a time.
func (s State) check(key string, now time.Time) error {
	latest := now.Add(MostHold + time.Hour) // clocks differ
	switch {
	case s.Key != key:
		return fmt.Errorf("is that of another key, %.100q", s.Key)
	case len(s.Holds) > MaxModels:
		return fmt.Errorf("holds %d models", len(s.Holds))
	case s.Changed.After(now.Add(time.Hour)):
		return errors.New("is of the future")
	}
	for model, until := range s.Holds {
		if len(model) > maxName || until.After(latest) {
			return fmt.Errorf("holds model %.100q until %v", model, until)
		}
	}
	uses := 0
	for model, of := range s.Uses {
		for worker, u := range of {
			// No number that is compared with NaN passes.
			if uses++; uses > MaxUses || len(model) > maxName || len(worker) > maxName || !(u.Pace >= 0 && u.Pace <= mostUse) || u.Calls < 0 || u.Calls > mostUse || u.At.After(latest) {
				return fmt.Errorf("has a use of model %.100q by %.100q: %+v", model, worker, u)
			}
		}
	}
	if r := s.Refused; r != nil && (len(r.Message) > maxText || r.Retry.After(latest) || r.Tries < 0 || strings.ContainsFunc(r.Message, func(c rune) bool { return c < ' ' })) {
		return fmt.Errorf("refuses the key until %v: %.100q", r.Retry, r.Message)
	}
	return nil
}

// A Store is that of a pool.
type Store struct{ conn *wire.Conn }

// Of returns the store of a pool, by the connection of its workers.
func Of(w presence.Workers) Store { return Store{w.Conn} }

// Get returns what is known of a key, at a time; what cannot be believed is nothing.
func (s Store) Get(ctx context.Context, key string, now time.Time) (State, error) {
	_, state, err := s.read(ctx, key, now)
	return state, err
}

// List returns what is known of all keys, at a time, by their names. What cannot be believed is
// left out.
func (s Store) List(ctx context.Context, now time.Time) ([]State, error) {
	var list []State
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Permits), Subject: subject.Permit("*")}) {
		if err != nil {
			return nil, fmt.Errorf("list the limits of keys: %w", err)
		}
		var named struct{ Key string }
		if json.Unmarshal(m.Data, &named) != nil || m.Subject != place(named.Key) {
			continue // of a cap, of which permits are kept here, too
		}
		if state, ok := believed(m, named.Key, now); ok {
			list = append(list, state)
		}
	}
	slices.SortFunc(list, func(a, b State) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

// place is where the state of a key is stored.
func place(key string) string { return subject.Permit(jobs.HashKey("ratelimit", key)) }

// believed decodes the state of a key.
func believed(m wire.Message, key string, now time.Time) (state State, ok bool) {
	ok = !m.Gone() && len(m.Data) <= maxSize && json.Unmarshal(m.Data, &state) == nil && state.check(key, now) == nil
	return state, ok
}

// Put adds what a worker knows, and returns what is known then.
func (s Store) Put(ctx context.Context, mine State, now time.Time) (State, error) {
	for {
		w, is, err := s.read(ctx, mine.Key, now)
		if err != nil {
			return mine, err
		}
		all := is.Merge(mine, now)
		if all.Equal(is) {
			return all, nil
		}
		if w.Data, err = json.Marshal(all); err != nil {
			return mine, err
		}
		w.TTL = keptFor
		if _, err = s.conn.Put(ctx, w); err == nil {
			return all, nil
		}
		if !errors.Is(err, wire.ErrConflict) {
			return mine, fmt.Errorf("store the limits of key %s: %w", mine.Key, err)
		}
	}
}

// read returns what is known of a key, and the write that would replace it.
func (s Store) read(ctx context.Context, key string, now time.Time) (wire.Write, State, error) {
	w := wire.Write{Stream: subject.KVStream(subject.Permits), Subject: place(key)}
	m, err := s.conn.Last(ctx, w.Stream, w.Subject)
	none := State{Key: key}
	if errors.Is(err, jobs.ErrNotFound) {
		return w, none, nil
	}
	if err != nil {
		return w, none, fmt.Errorf("read the limits of key %s: %w", key, err)
	}
	w.Expect = m.Seq
	if state, ok := believed(m, key, now); ok {
		return w, state, nil
	}
	return w, none, nil
}
