package governor

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// stay is how long a call waits for the key of its session before it takes another one, for which the
// API may have nothing of the conversation in its caches.
const stay = 10 * time.Second

// A Set is the governors of one API's keys, or some of them. Calls go to one of them.
type Set []*Governor

// New returns the governors of an API's keys.
func New(keys ...Key) Set { return Set(nil).Next(keys...) }

// Next returns the governors of the keys that replace those of the set. A key that is in both keeps its
// own, which has its new name and weight from now on.
func (s Set) Next(keys ...Key) Set {
	mu := &sync.Mutex{}
	if len(s) > 0 {
		mu = s[0].mu
	}
	mu.Lock()
	defer mu.Unlock()
	var next Set
	for _, key := range keys {
		if key.Weight <= 0 {
			key.Weight = 1
		}
		if at := slices.IndexFunc(s, func(g *Governor) bool { return g.key.ID == key.ID }); at >= 0 {
			s[at].key.Name, s[at].key.Weight = key.Name, key.Weight
			next = append(next, s[at])
			continue
		}
		// Workers that start together do not all begin with the same key.
		g := &Governor{self: strconv.FormatUint(rand.Uint64(), 36), key: key, mu: mu, news: make(chan struct{}, 1), lines: map[string]*queue{}, credit: rand.Float64() * key.Weight}
		next = append(next, g)
	}
	return next
}

// A Call is one that waits for its time.
type Call struct {
	Model    string
	Arrived  time.Time
	Patience time.Duration // since then
	// Stay is the key that the session used last; nil: any may be chosen.
	Stay *Governor
	// Changed is closed once there are other keys to choose from; nil: never.
	Changed <-chan struct{}
}

// A waiter is a call that waits, in the queues of one key or several.
type waiter struct {
	call     Call
	deadline time.Time
	decided  chan struct{}

	// guarded by the governors' lock, and valid once decided is closed
	at        []place
	elsewhere bool // there are other keys that it could wait for
	waited    bool // it could not begin when it came, or was not the first
	pass      Pass
	err       error
	held      []heldAt
}

// A place is a queue that a call waits in.
type place struct {
	of    *Governor
	queue *queue
}

// heldAt says from when on a call could be made that a key does not take.
type heldAt struct {
	of      *Governor
	until   time.Time
	model   string // empty: the key is refused
	refused bool
}

// errElsewhere means that a call waits for any key, and not for its session's any more.
var errElsewhere = errors.New("it takes longer than another key would")

// errChanged means that there are other keys than those that the call waited for.
var errChanged = errors.New("there are other keys")

// Acquire waits until a call may begin with one of the keys. The error is a [*HeldError] once it
// is clear that this takes longer than the call's patience with all of them, or that of ctx. It is
// another one once the call should choose among other keys.
func (s Set) Acquire(ctx context.Context, c Call) (Pass, error) {
	among := s
	if len(s) > 1 && slices.Contains(s, c.Stay) {
		among = Set{c.Stay}
	}
	for {
		w := &waiter{call: c, deadline: c.Arrived.Add(c.Patience), decided: make(chan struct{}), elsewhere: len(among) < len(s), waited: true}
		among.enter(w)
		select {
		case <-w.decided:
		case <-ctx.Done():
			if among.leave(w) {
				return Pass{}, context.Cause(ctx)
			}
		case <-c.Changed:
			if among.leave(w) {
				return Pass{}, errChanged
			}
		}
		if !errors.Is(w.err, errElsewhere) {
			return w.pass, w.err
		}
		among = s
	}
}

// enter puts a call into the queues of the keys, the best one first.
func (s Set) enter(w *waiter) {
	s[0].mu.Lock()
	defer s[0].mu.Unlock()
	now := time.Now()
	for _, g := range s {
		q := g.queue(w.call.Model)
		w.at = append(w.at, place{g, q})
		at, _ := slices.BinarySearchFunc(q.waiting, w, func(other, w *waiter) int {
			if other.call.Arrived.After(w.call.Arrived) {
				return 1
			}
			return -1
		})
		w.waited = w.waited && len(q.waiting) > 0
		q.waiting = slices.Insert(q.waiting, at, w)
		if len(s) > 1 { // a call tries the key again when it is time: it has the others
			if _, probe := g.circuit.admit(now); probe {
				g.tell()
			}
		}
	}
	for _, p := range s.ordered(now, w.at) {
		p.of.admit(p.queue, w.call.Model)
	}
}

// leave removes a call that does not wait any more. It reports whether it was still waiting.
func (s Set) leave(w *waiter) bool {
	s[0].mu.Lock()
	defer s[0].mu.Unlock()
	select {
	case <-w.decided:
		return false
	default:
	}
	at := w.at
	w.decide(nil)
	for _, p := range at {
		p.of.admit(p.queue, w.call.Model)
	}
	return true
}

// ordered puts the key first that a new session gets: in turn by their weights, those with
// less left less often. The caller holds the lock.
func (s Set) ordered(now time.Time, at []place) []place {
	order := slices.Clone(at)
	var sum, most float64
	best := -1
	for i, p := range at {
		if !p.of.circuit.blocks(now).IsZero() || p.queue.line.Full() || p.queue.line.Wait(now) > 0 {
			continue
		}
		share := p.of.key.Weight * p.queue.line.left(now)
		p.of.credit, sum = p.of.credit+share, sum+share
		if best < 0 || p.of.credit > most {
			best, most = i, p.of.credit
		}
	}
	if best < 0 {
		return order
	}
	at[best].of.credit -= sum
	order[0], order[best] = order[best], order[0]
	return order
}

// decide ends the wait of a call, in all queues. The caller holds the lock.
func (w *waiter) decide(err error) {
	for _, p := range w.at {
		p.queue.remove(w)
	}
	w.at, w.err = nil, err
	close(w.decided)
}

func (q *queue) remove(w *waiter) {
	q.waiting = slices.DeleteFunc(q.waiting, func(other *waiter) bool { return other == w })
}

// without removes a call from the queue of a key that takes too long. The last one ends its wait.
// The caller holds the lock.
func (w *waiter) without(p place, until, now time.Time, model string) {
	w.held = append(w.held, heldAt{p.of, until, model, model == "" && p.of.circuit.refused != nil})
	if len(w.at) > 1 {
		w.at = slices.DeleteFunc(w.at, func(other place) bool { return other == p })
		p.queue.remove(w)
		return
	}
	if w.elsewhere {
		w.decide(errElsewhere)
		return
	}
	w.decide(soonest(w.held, now))
}

// soonest is the error of a call or a job that no key takes: the earliest time, of those keys that the API
// accepts where there are any. The caller holds the lock.
func soonest(all []heldAt, now time.Time) error {
	best := slices.MinFunc(all, func(a, b heldAt) int {
		if a.refused != b.refused {
			if a.refused {
				return 1
			}
			return -1
		}
		return a.until.Compare(b.until)
	})
	held := best.of.held(best.until, now, best.model)
	if len(all) > 1 {
		var names []string
		for _, h := range all {
			if h.refused == best.refused {
				names = append(names, h.of.name())
			}
		}
		held.Key = strings.Join(names, ", ")
	}
	return held
}

// admit decides on the calls that wait, and has itself called when the next one may begin.
// The caller holds mu.
func (g *Governor) admit(q *queue, model string) {
	now, here := time.Now(), place{g, q}
	if until := g.circuit.blocks(now); !until.IsZero() {
		for _, w := range slices.Clone(q.waiting) {
			w.without(here, until, now, "")
		}
	}
	for len(q.waiting) > 0 {
		w := q.waiting[0]
		if q.line.Full() || q.line.Wait(now) > 0 {
			w.waited = true
			break
		}
		q.line.Begin(now, w.waited)
		w.pass = Pass{g, q, now}
		w.decide(nil)
	}
	g.expire(q, now, model)
	if q.timer != nil {
		q.timer.Stop()
	}
	if len(q.waiting) == 0 {
		return
	}
	next := q.waiting[0].deadline
	for _, w := range q.waiting {
		next = earlier(next, w.deadline)
		if w.elsewhere {
			next = earlier(next, w.call.Arrived.Add(stay))
		}
	}
	if wait := q.line.Wait(now); !q.line.Full() {
		next = earlier(next, now.Add(wait))
	}
	q.timer = time.AfterFunc(max(next.Sub(now), time.Millisecond), func() { g.wake(q, model) })
}

func (g *Governor) wake(q *queue, model string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit(q, model)
}

// expire ends the wait of calls whose patience is over, or will be before any can begin, and of
// those that another key can serve sooner. The caller holds mu.
func (g *Governor) expire(q *queue, now time.Time, model string) {
	wait := q.line.Wait(now)
	can := now.Add(wait)
	for i, w := range slices.Clone(q.waiting) {
		switch {
		case w.elsewhere && (wait > stay || q.line.later(i) > stay || now.Sub(w.call.Arrived) >= stay):
			w.decide(errElsewhere)
		case can.After(w.deadline) || !now.Before(w.deadline):
			w.without(place{g, q}, later(can, now.Add(time.Second)), now, model)
		}
	}
}

// Admit reports whether a job may begin whose agent was told to use a model; empty: its
// own. The error is a [*HeldError] if its first call would wait for longer than patience.
func (s Set) Admit(model string, patience time.Duration) error {
	s[0].mu.Lock()
	defer s[0].mu.Unlock()
	now, free := time.Now(), false
	var all []heldAt
	for _, g := range s {
		h := g.begins(now, model, patience)
		all, free = append(all, h), free || h.until.IsZero()
	}
	if free {
		return nil
	}
	return soonest(all, now)
}

// begins returns from when on a job may begin with the key; zero: now. The caller holds mu.
func (g *Governor) begins(now time.Time, model string, patience time.Duration) heldAt {
	until, probe := g.circuit.admit(now)
	if !until.IsZero() {
		return heldAt{g, until, "", true}
	}
	if probe {
		g.tell()
	}
	h := heldAt{of: g}
	for name, q := range g.lines {
		named := model == "" || strings.Contains(name, model)
		if hold := q.line.Until(); named && hold.Sub(now) > patience && hold.After(h.until) {
			h.until, h.model = hold, name
		}
	}
	return h
}

// Refused reports whether the API refuses all keys of the set.
func (s Set) Refused() bool {
	return !slices.ContainsFunc(s, func(g *Governor) bool { return !g.Standing().Refused })
}
