// Package governor keeps the calls of all sessions within what a model API allows a key.
//
//	call ─▶ Acquire: circuit closed? hold over? pace? not too many at once? ─▶ API ─▶ Done: learn from the answer
//	             └ waits in the order of arrival; after its patience: HeldError
//	job  ─▶ Admit: would its first call wait for longer than that? ─▶ HeldError
//
// Where an API has several keys, a [Set] of their governors chooses one for each call.
// A [Line], for each model, adapts to the answers; it is a state machine without a clock.
// A circuit keeps all calls back while the key itself is refused. Of both the state that
// other workers need is exported and imported; package jobs/ratelimit carries it. No I/O.
package governor

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/ratelimit"
)

// worthTelling is how long a hold is at least that other workers hear of, and tellUses how often they hear how
// models are used.
const (
	worthTelling = 5 * time.Second
	tellUses     = 10 * time.Second
)

// maxStagger bounds how much later than the first of them held sessions go on.
const maxStagger = 10 * time.Minute

// A HeldError says that no call may be made for longer than its session can wait.
type HeldError struct {
	Key     string    // what people call it; several, with commas between them, if none can be used
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

// A Key is one that the API knows.
type Key struct {
	ID   string // see [ratelimit.Name]
	Name string // what people call it; empty: the ID
	// Weight is its share of the sessions, in proportion to those of the others; 0 is 1.
	Weight float64
}

// A Governor is that of one key. Its methods may be called from any goroutine.
type Governor struct {
	// news has a value while there is something to export.
	news chan struct{}

	self string // its name among the uses of the key

	mu      *sync.Mutex       // of all governors of its set
	key     Key               // but for its ID, guarded by mu
	lines   map[string]*queue // by model; guarded by mu
	circuit circuit           // guarded by mu
	staged  time.Time         // the time after which sessions go on; guarded by mu
	stage   int               // how many go on then; guarded by mu
	credit  float64           // of sessions that it gets before others do; guarded by mu
	told    time.Time         // when its uses were last exported; guarded by mu
	using   bool              // they had calls then; guarded by mu
}

// A queue is the calls of one model that wait.
type queue struct {
	line    *Line
	waiting []*waiter // in the order of arrival
	timer   *time.Timer
}

// ID returns the key's name on the broker.
func (g *Governor) ID() string { return g.key.ID }

// Name returns what people call the key.
func (g *Governor) Name() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.name()
}

// name is called with the lock held.
func (g *Governor) name() string { return cmp.Or(g.key.Name, g.key.ID) }

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
	e := &HeldError{Key: g.name(), Model: model, Until: until.Add(min(time.Duration(g.stage)*gap, maxStagger))}
	g.stage++
	if g.circuit.refused != nil && model == "" {
		e.Refused = g.circuit.refused.Message
	}
	return e
}

// A Pass is a call that has begun. The zero value is none.
type Pass struct {
	of    *Governor
	queue *queue
	began time.Time
}

// Of returns the governor of the key with which the call is made.
func (p Pass) Of() *Governor { return p.of }

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
// again.
func (g *Governor) Refuse(message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.circuit.open(time.Now(), message)
	g.tell()
	for model, q := range g.lines {
		g.admit(q, model)
	}
}

// Export returns what other workers need to know.
func (g *Governor) Export() ratelimit.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := ratelimit.State{Key: g.key.ID, Refused: g.circuit.refused, Changed: g.circuit.changed}
	now, mine := time.Now(), ratelimit.State{Key: g.key.ID, Holds: map[string]time.Time{}, Uses: map[string]map[string]ratelimit.Use{}}
	g.told, g.using = now, false
	for model, q := range g.lines {
		if until := q.line.Until(); until.Sub(now) >= worthTelling {
			mine.Holds[model] = until
		}
		if use := q.use(now); use.Pace > 0 {
			mine.Uses[model] = map[string]ratelimit.Use{g.self: use}
			g.using = g.using || use.Calls > 0
		}
	}
	return s.Merge(mine, now)
}

// use is how the model is used here; of a pace that is not needed only what is.
func (q *queue) use(now time.Time) ratelimit.Use {
	pace := q.line.pace()
	if len(q.waiting) == 0 {
		pace = min(pace, float64(q.line.recent(now))/window.Seconds())
	}
	return ratelimit.Use{Pace: pace, Calls: len(q.waiting) + q.line.running, At: now}
}

// Due reports whether it is time to tell other workers how often models are called here, of which calls were
// refused: now and then while they are, and once when they are not any more.
func (g *Governor) Due() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, using := time.Now(), false
	for _, q := range g.lines {
		use := q.use(now)
		using = using || use.Pace > 0 && use.Calls > 0
	}
	return g.using && !using || using && now.Sub(g.told) >= tellUses
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
	for model, uses := range s.Uses {
		if q := g.lines[model]; q != nil {
			q.share(g.self, uses, now)
		}
	}
	for model, q := range g.lines {
		g.admit(q, model)
	}
}

// share moves the pace towards that with which calls wait as long here as with the other workers.
func (q *queue) share(self string, uses map[string]ratelimit.Use, now time.Time) {
	mine := q.use(now)
	pace, calls := mine.Pace, mine.Calls
	for worker, use := range uses {
		if worker != self && now.Sub(use.At) <= ratelimit.UseFor {
			pace, calls = pace+use.Pace, calls+use.Calls
		}
	}
	if len(q.waiting) > 0 {
		q.line.Tend(now, pace*float64(mine.Calls)/float64(calls))
	}
}

// A Standing says how it is with a key.
type Standing struct {
	Key     string        // its name for people; empty: it has none
	Waiting int           // calls that wait
	Held    time.Duration // how long the longest hold of a model lasts
	Refused bool          // the provider refuses the key
	Used    bool          // calls wait, or are under way
}

// Standing returns how it is now.
func (g *Governor) Standing() Standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, now := Standing{Key: g.key.Name, Refused: g.circuit.refused != nil}, time.Now()
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
