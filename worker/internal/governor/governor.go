// Package governor keeps the calls of all sessions within what a model API allows a key.
//
//	call ─▶ Acquire: circuit closed? hold over? pace? not too many at once? ─▶ API ─▶ Done: learn from the answer
//	             └ waits in the order of arrival; after its patience: HeldError
//	job  ─▶ Admit: would its first call wait for longer than that? ─▶ HeldError
//
// A [Line], for each model, adapts to the answers; it is a state machine without a clock.
// A circuit keeps all calls back while the key itself is refused. Of both the state that
// other workers need is exported and imported; package jobs/ratelimit carries it. No I/O.
package governor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/ratelimit"
)

// worthTelling is how long a hold is at least that other workers hear of.
const worthTelling = 5 * time.Second

// maxStagger bounds how much later than the first of them held sessions go on.
const maxStagger = 10 * time.Minute

// A HeldError says that no call may be made for longer than its session can wait.
type HeldError struct {
	Key     string    // see [ratelimit.Name]
	Model   string    // empty: it concerns all
	Until   time.Time // when this session goes on; each has another time
	Refused string    // why the provider refuses the key; empty: it does not
}

func (e *HeldError) Error() string {
	at := e.Until.UTC().Format(time.RFC3339)
	if e.Refused != "" {
		return fmt.Sprintf("the model API refuses the key %s (%s); it is tried again at %s", e.Key, e.Refused, at)
	}
	return fmt.Sprintf("the model API takes no more calls of model %s with key %s for now; it goes on at %s", plain(e.Model), e.Key, at)
}

// A Governor is that of one key. Its methods may be called from any goroutine.
type Governor struct {
	key string
	// news has a value while there is something to export.
	news chan struct{}

	mu      sync.Mutex
	lines   map[string]*queue // by model; guarded by mu
	circuit circuit           // guarded by mu
	staged  time.Time         // the time after which sessions go on; guarded by mu
	stage   int               // how many go on then; guarded by mu
}

// A queue is the calls of one model that wait.
type queue struct {
	line    *Line
	waiting []*waiter // in the order of arrival
	timer   *time.Timer
}

// A waiter is a call that waits.
type waiter struct {
	arrived, deadline time.Time
	err               error // valid once decided is closed
	waited            bool  // it could not begin when it came, or was not the first; guarded by mu
	decided           chan struct{}
}

// New returns the governor of a key, which has a name; see [ratelimit.Name].
func New(key string) *Governor {
	return &Governor{key: key, news: make(chan struct{}, 1), lines: map[string]*queue{}}
}

// Key returns the key's name.
func (g *Governor) Key() string { return g.key }

// News returns a channel that has a value while other workers do not know what this one
// does.
func (g *Governor) News() <-chan struct{} { return g.news }

// Unheard notes that the others could not be told: it is news again.
func (g *Governor) Unheard() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell()
}

// tell is called with the lock held.
func (g *Governor) tell() {
	select {
	case g.news <- struct{}{}:
	default: // there is news already
	}
}

// A Pass is a call that has begun. The zero value is none.
type Pass struct {
	of    *Governor
	queue *queue
	began time.Time
}

// Acquire waits until a call of a model may begin that arrived at a time. The error is a
// [*HeldError] once it is clear that this takes longer than patience since then, or that of ctx.
func (g *Governor) Acquire(ctx context.Context, model string, arrived time.Time, patience time.Duration) (Pass, error) {
	w := &waiter{arrived: arrived, deadline: arrived.Add(patience), decided: make(chan struct{})}
	q := g.enter(model, w)
	select {
	case <-w.decided:
	case <-ctx.Done():
		if g.leave(q, model, w) {
			return Pass{}, context.Cause(ctx)
		}
	}
	if w.err != nil {
		return Pass{}, w.err
	}
	return Pass{g, q, time.Now()}, nil
}

func (g *Governor) enter(model string, w *waiter) *queue {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queue(model)
	at, _ := slices.BinarySearchFunc(q.waiting, w, func(other, w *waiter) int {
		if other.arrived.After(w.arrived) {
			return 1
		}
		return -1
	})
	w.waited = len(q.waiting) > 0
	q.waiting = slices.Insert(q.waiting, at, w)
	g.admit(q, model)
	return q
}

// leave removes a call that does not wait any more. It reports whether it was still waiting.
func (g *Governor) leave(q *queue, model string, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(q.waiting, w)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
		g.admit(q, model)
	}
	return at >= 0
}

// queue returns that of a model. Agents choose the names, so there are only so many; the
// rest have one together. The caller holds mu.
func (g *Governor) queue(model string) *queue {
	if q := g.lines[model]; q != nil {
		return q
	}
	if len(g.lines) >= ratelimit.MaxModels {
		g.forget(time.Now())
	}
	if len(g.lines) >= ratelimit.MaxModels {
		model = ""
	}
	q := g.lines[model]
	if q == nil {
		q = &queue{line: NewLine()}
		g.lines[model] = q
	}
	return q
}

// forget removes the lines of models that are not in use. The caller holds mu.
func (g *Governor) forget(now time.Time) {
	for model, q := range g.lines {
		if q.line.running == 0 && len(q.waiting) == 0 && !q.line.until.After(now) {
			delete(g.lines, model)
		}
	}
}

// admit decides on the calls that wait, and has itself called when the next one may begin.
// The caller holds mu.
func (g *Governor) admit(q *queue, model string) {
	now := time.Now()
	for len(q.waiting) > 0 {
		if until := g.circuit.blocks(now); !until.IsZero() {
			q.decide(0, g.held(until, now, ""))
			continue
		}
		w := q.waiting[0]
		if q.line.Full() || q.line.Wait(now) > 0 {
			w.waited = true
			break
		}
		q.line.Begin(now, w.waited)
		q.decide(0, nil)
	}
	q.expire(now, func(until time.Time) error { return g.held(until, now, model) })
	if q.timer != nil {
		q.timer.Stop()
	}
	if len(q.waiting) == 0 {
		return
	}
	next := q.waiting[0].deadline
	for _, w := range q.waiting {
		next = earlier(next, w.deadline)
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

// decide ends the wait of a call.
func (q *queue) decide(at int, err error) {
	w := q.waiting[at]
	q.waiting = slices.Delete(q.waiting, at, at+1)
	w.err = err
	close(w.decided)
}

// expire ends the wait of calls whose patience is over, or will be before any can begin.
func (q *queue) expire(now time.Time, held func(until time.Time) error) {
	can := now.Add(q.line.Wait(now))
	for _, w := range slices.Clone(q.waiting) {
		if can.After(w.deadline) || !now.Before(w.deadline) {
			q.decide(slices.Index(q.waiting, w), held(later(can, now.Add(time.Second))))
		}
	}
}

// held returns when one more session goes on that waits until a time: one after the other.
// The caller holds mu.
func (g *Governor) held(until, now time.Time, model string) *HeldError {
	if until.Sub(g.staged).Abs() > maxStagger/2 {
		g.staged, g.stage = until, 0
	}
	gap := time.Second / 4
	if q := g.lines[model]; q != nil && q.line.rate > 0 {
		gap = max(gap, time.Duration(float64(time.Second)/q.line.pace()))
	}
	e := &HeldError{Key: g.key, Model: model, Until: until.Add(min(time.Duration(g.stage)*gap, maxStagger))}
	g.stage++
	if g.circuit.refused != nil && model == "" {
		e.Refused = g.circuit.refused.Message
	}
	return e
}

// Heard takes over what the head of the call's answer says is left.
func (p Pass) Heard(rooms []Room) {
	if p.of == nil || len(rooms) == 0 {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for _, r := range rooms {
		p.queue.line.Learn(time.Now(), r)
	}
}

// Done ends a call, whose answer says something of the limits.
func (p Pass) Done(model string, a Answer) {
	if p.of == nil {
		return
	}
	g := p.of
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	before := p.queue.line.Until()
	p.queue.line.End(now, p.began, a)
	accepted := (a.Kind == Served || a.Kind == Limited) && g.circuit.close(now)
	if until := p.queue.line.Until(); accepted || until.After(before) && until.Sub(now) >= worthTelling {
		g.tell()
	}
	g.admit(p.queue, model)
}

// Refuse notes that the provider refuses the key: no call begins until one job has tried it
// again. The error says when.
func (g *Governor) Refuse(message string) *HeldError {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.circuit.open(now, message)
	g.tell()
	for model, q := range g.lines {
		g.admit(q, model)
	}
	return g.held(g.circuit.refused.Retry, now, "")
}

// Admit reports whether a job may begin whose agent was told to use a model; empty: its
// own. The error is a [*HeldError] if its first call would wait for longer than patience.
func (g *Governor) Admit(model string, patience time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	until, probe := g.circuit.admit(now)
	if !until.IsZero() {
		return g.held(until, now, "")
	}
	if probe {
		g.tell()
	}
	on := ""
	for name, q := range g.lines {
		named := model == "" || strings.Contains(name, model)
		if hold := q.line.Until(); named && hold.Sub(now) > patience && hold.After(until) {
			until, on = hold, name
		}
	}
	if until.IsZero() {
		return nil
	}
	return g.held(until, now, on)
}

// Export returns what other workers need to know.
func (g *Governor) Export() ratelimit.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := ratelimit.State{Key: g.key, Refused: g.circuit.refused, Changed: g.circuit.changed}
	now, mine := time.Now(), ratelimit.State{Key: g.key, Holds: map[string]time.Time{}}
	for model, q := range g.lines {
		if until := q.line.Until(); until.Sub(now) >= worthTelling {
			mine.Holds[model] = until
		}
	}
	return s.Merge(mine, now)
}

// Import takes over what other workers know.
func (g *Governor) Import(s ratelimit.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.circuit.adopt(s)
	for model, until := range s.Holds {
		if until.After(now) {
			g.queue(model).line.Hold(now, until)
		}
	}
	for model, q := range g.lines {
		g.admit(q, model)
	}
}

// A Standing says how it is with a key.
type Standing struct {
	Waiting int           // calls that wait
	Held    time.Duration // how long the longest hold of a model lasts
	Refused bool          // the provider refuses the key
	Used    bool          // calls wait, or are under way
}

// Standing returns how it is now.
func (g *Governor) Standing() Standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, now := Standing{Refused: g.circuit.refused != nil}, time.Now()
	for _, q := range g.lines {
		s.Waiting += len(q.waiting)
		s.Used = s.Used || len(q.waiting) > 0 || q.line.running > 0
		s.Held = max(s.Held, q.line.Until().Sub(now))
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
