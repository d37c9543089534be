package gate

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Limits bound what a session may use.
type Limits struct {
	// Tokens is the budget: everything that the provider counts, read from
	// its cache or not. Zero is no limit.
	Tokens int64
	// Used was used before, by earlier attempts, and counts.
	Used jobs.Usage
	// Remote allows what the provider does on the agent's behalf in the
	// network: tools that run there, contents given by URL. It is a way out
	// of a jail that has no other.
	Remote bool
}

// A Meter is what a session has used so far, without Limits.Used.
type Meter struct {
	Usage      jobs.Usage
	Model      string // the last that answered
	Calls      int    // forwarded to the provider
	Limited    int    // of these, answered with 429
	Failed     int    // of these, answered with 5xx or not at all
	Refused    int    // not forwarded: the budget is spent
	Violations int    // not forwarded: not allowed
}

// A Call is one request that was forwarded.
type Call struct {
	Route  string // "POST /v1/messages"
	Model  string
	Status int // what the agent was told
	Usage  jobs.Usage
	Took   time.Duration
	Err    error // what went wrong on the way, if anything
}

// A Violation is a request that nobody needs to make.
type Violation struct {
	What   string // "path", "tool", …
	Method string
	Path   string // cut to a sane length
}

// A Session is one user of a gate. Its methods may be called from any
// goroutine.
type Session struct {
	id     string
	limits Limits
	spent  chan struct{} // closed once the budget is spent

	mu    sync.Mutex
	meter Meter                             // guarded by mu
	calls map[*call]context.CancelCauseFunc // under way; guarded by mu
}

// NewSession returns a session that has used nothing but limits.Used.
func NewSession(id string, limits Limits) *Session {
	s := &Session{id: id, limits: limits, spent: make(chan struct{}), calls: map[*call]context.CancelCauseFunc{}}
	if limits.Tokens > 0 && tokens(limits.Used) >= limits.Tokens {
		close(s.spent)
	}
	return s
}

// Meter returns what was used so far.
func (s *Session) Meter() Meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meter
}

// Spent returns a channel that is closed once the budget is spent.
func (s *Session) Spent() <-chan struct{} { return s.spent }

func (s *Session) isSpent() bool {
	select {
	case <-s.spent:
		return true
	default:
		return false
	}
}

// note changes the meter.
func (s *Session) note(change func(*Meter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.meter)
}

// begin enters a call, so that it is cut if another spends the budget. It
// reports whether there is a budget left.
func (s *Session) begin(c *call, cut context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isSpent() {
		s.meter.Refused++
		return false
	}
	s.calls[c] = cut
	s.meter.Calls++
	return true
}

func (s *Session) end(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
}

// use adds to the meter what c has used since it was last asked. It reports
// whether that spent the budget; then every other call is cut.
func (s *Session) use(c *call, model string, more jobs.Usage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.Usage = s.meter.Usage.Add(more)
	if model != "" {
		s.meter.Model = model
	}
	if s.limits.Tokens <= 0 || tokens(s.meter.Usage.Add(s.limits.Used)) < s.limits.Tokens || s.isSpent() {
		return false
	}
	close(s.spent)
	for other, cut := range s.calls {
		if other != c {
			cut(errSpent)
		}
	}
	return true
}

func tokens(u jobs.Usage) int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }
