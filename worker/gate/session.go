package gate

import (
	"context"
	"crypto/subtle"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Limits bound what a session may use.
type Limits struct {
	// Tokens is the budget: every token that the provider counts, whether read from its
	// cache or not. Zero is no limit.
	Tokens int64
	// USD is the budget in money. It applies to models in Config.Prices.
	USD float64
	// Used and UsedUSD are the usage of earlier attempts, which counts.
	Used    jobs.Usage
	UsedUSD float64
	// Remote allows the provider to use the network on the agent's behalf: tools that
	// run there, contents given by URL. It is a way out of a jail that has no other.
	Remote bool
}

// A Meter is the usage of a session so far, without Limits.Used.
type Meter struct {
	Usage      jobs.Usage
	CostUSD    float64 // of the models in Config.Prices
	Unpriced   int64   // tokens of other models
	Model      string  // the last model that answered
	Calls      int     // forwarded to the provider
	Limited    int     // of these, answered with 429
	Failed     int     // of these, answered with 5xx or not at all
	Refused    int     // not forwarded: the budget is spent
	Violations int     // not forwarded: not allowed
	Strangers  int     // not forwarded: without the session's token
}

// A Call is one request that was forwarded.
type Call struct {
	Route  string // "POST /v1/messages"
	Model  string
	Status int // the status that the agent received
	Usage  jobs.Usage
	Took   time.Duration
	// RetryAfter is how long the provider asked to wait, if it did.
	RetryAfter time.Duration
	Err        error // the error on the way, if any
}

// A Violation is a request that is not allowed.
type Violation struct {
	What   string // "path", "host", "body: …"
	Method string
	Path   string // without the query, of printable characters; longer than any reader keeps, so that a secret in it is seen whole
}

// A Session is one client of a gate. Its methods may be called from any goroutine.
type Session struct {
	// Refused is called for every request that is not allowed, on the goroutine of that
	// request. It must not block, and is set before the session is served.
	Refused func(v Violation)

	id     string
	token  Key
	limits Limits
	spent  chan struct{} // closed once the budget is spent

	mu      sync.Mutex
	meter   Meter                             // guarded by mu
	failing Failure                           // guarded by mu
	calls   map[*call]context.CancelCauseFunc // under way; guarded by mu
}

// NewSession returns a session without usage besides limits.Used. It admits only
// requests with the token, which a program sends as the key of the API. An empty token
// admits no request.
func NewSession(id string, token Key, limits Limits) *Session {
	s := &Session{id: id, token: token, limits: limits, spent: make(chan struct{}), calls: map[*call]context.CancelCauseFunc{}}
	if s.over() {
		close(s.spent)
	}
	return s
}

// opens reports whether one of the credentials of a request is the token. It takes the
// same time for all wrong ones.
func (s *Session) opens(credentials []string) bool {
	found := 0
	for _, c := range credentials {
		found |= subtle.ConstantTimeCompare([]byte(c), []byte(s.token))
	}
	return found == 1 && s.token != ""
}

// over reports whether the budget is used up. The caller holds mu, or is
// alone.
func (s *Session) over() bool {
	l := s.limits
	return l.Tokens > 0 && tokens(s.meter.Usage.Add(l.Used)) >= l.Tokens || l.USD > 0 && s.meter.CostUSD+l.UsedUSD >= l.USD
}

// Meter returns the usage so far.
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

// begin registers a call, so that another call that spends the budget can cut it. It
// reports whether budget is left.
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

// use adds to the meter what c has used since the last time, at its price. It reports
// whether that spent the budget; then it cuts every other call.
func (s *Session) use(c *call, more jobs.Usage, price *Price) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.Usage = s.meter.Usage.Add(more)
	if price != nil {
		s.meter.CostUSD += price.of(more)
	} else {
		s.meter.Unpriced += tokens(more)
	}
	s.meter.Model = c.result.Model
	if !s.over() || s.isSpent() {
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

// budget describes the budget, for the message that says it is spent.
func (s *Session) budget() string {
	switch l := s.limits; {
	case l.Tokens > 0 && l.USD > 0:
		return fmt.Sprintf("%d tokens or %v USD", l.Tokens, l.USD)
	case l.USD > 0:
		return fmt.Sprintf("%v USD", l.USD)
	default:
		return fmt.Sprintf("%d tokens", l.Tokens)
	}
}

func tokens(u jobs.Usage) int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }
