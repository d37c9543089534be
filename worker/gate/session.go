package gate

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/budget"
)

// Limits bound what a session may use.
type Limits struct {
	// Tokens is the budget: every token that the provider counts, whether read from its
	// cache or not. Zero is no limit.
	Tokens int64
	// USD is the budget in money.
	USD float64
	// Used and UsedUSD are the usage of earlier attempts, which counts.
	Used    jobs.Usage
	UsedUSD float64
	// Shared are budgets that other sessions use, too, and Keyed those of single keys, by the
	// key's name.
	Shared []Purse
	Keyed  map[string][]Purse
	// Queue is that of the job, which says which keys it uses.
	Queue string
	// Patience bounds how long a call waits for the provider's limits; zero: as
	// long as the gate lets it.
	Patience time.Duration
	// Policy and Job are what the worker and the job allow calls to ask for: both must.
	Policy, Job Allowed
	// Remote allows the provider to use the network on the agent's behalf: tools that
	// run there, contents given by URL. It is a way out of a jail that has no other.
	Remote bool
}

// A Meter is the usage of a session so far, without Limits.Used.
type Meter struct {
	Usage      jobs.Usage
	CostUSD    float64 // by Config.Prices
	Unpriced   int64   // tokens of models that have no price, and so the dearest
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
	Waited     time.Duration // for the provider's limits, before it was made
	Err        error         // the error on the way, if any
}

// A Violation is a request that is not allowed.
type Violation struct {
	What   string // "path", "host", "body: …"
	Field  string // of [Allowed], if it is that: "model", "service_tier", "inference_geo", "beta", "file_id" or "container_id"
	Method string
	Path   string // without the query, of printable characters; longer than any reader keeps, so that a secret in it is seen whole
}

// A Session is one client of a gate. Its methods may be called from any goroutine.
type Session struct {
	// Refused is called for every request that is not allowed, on the goroutine of that
	// request. It must not block, and is set before the session is served.
	Refused func(v Violation)
	// Unpriced is called once for each of the first models that have no price, and Budget
	// once when most of the budget is spent, and once when all of it is. They are called
	// like Refused, and may be nil.
	Unpriced func(model string)
	Budget   func(spent bool)
	// Nearly is called once for each shared budget of which most is spent when a call
	// begins. It is called like Refused, and may be nil.
	Nearly func(p Purse)
	// Moved is called when the session goes on with another key, at most maxMoves times. It is
	// called like Refused, and may be nil.
	Moved func(from, to string)

	id     string
	token  Key
	limits Limits
	budget *budget.Account
	shares []*share
	keyed  map[string][]*share
	choice choice // of keys
	// shared is closed once a budget is spent that the session shares, which is in over.
	shared chan struct{}
	// held is closed once a call would have to wait for too long.
	held chan struct{}

	mu      sync.Mutex
	meter   Meter                             // guarded by mu
	unknown map[string]bool                   // models without a price; guarded by mu
	over    Purse                             // guarded by mu until shared is closed
	failing Failure                           // guarded by mu
	hold    *Hold                             // guarded by mu until held is closed
	calls   map[*call]context.CancelCauseFunc // under way; guarded by mu
}

// NewSession returns a session without usage besides limits.Used. It admits only
// requests with the token, which a program sends as the key of the API. An empty token
// admits no request.
func NewSession(id string, token Key, limits Limits) *Session {
	keyed := map[string][]*share{}
	for name, purses := range limits.Keyed {
		keyed[name] = sharesOf(purses)
	}
	return &Session{
		keyed: keyed,
		id:    id, token: token, limits: limits, calls: map[*call]context.CancelCauseFunc{}, unknown: map[string]bool{}, shared: make(chan struct{}), held: make(chan struct{}), shares: sharesOf(limits.Shared),
		budget: budget.New(
			budget.Amount{USD: limits.USD, Tokens: limits.Tokens},
			budget.Amount{USD: limits.UsedUSD, Tokens: limits.Used.Total()}),
	}
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

// Meter returns the usage so far.
func (s *Session) Meter() Meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meter
}

// Spent returns a channel that is closed once the budget is spent.
func (s *Session) Spent() <-chan struct{} { return s.budget.Spent() }

// note changes the meter.
func (s *Session) note(change func(*Meter)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.meter)
}

// reserve waits until the budgets have room for a call that uses so much at the most. The
// error is [budget.ErrSpent] if nothing is left of one.
func (s *Session) reserve(ctx context.Context, most budget.Amount) (reservation, error) {
	r := reservation{}
	var err error
	if r.own, err = s.budget.Reserve(ctx, most); err == nil {
		if r.shared, err = s.reserveAll(ctx, s.shares, most); err != nil {
			s.overspent(err)
			r.release()
		}
	}
	if errors.Is(err, budget.ErrSpent) {
		s.note(func(m *Meter) { m.Refused++ })
	}
	return r, err
}

// begin registers a call, so that another call that spends the budget can cut it.
func (s *Session) begin(c *call, cut context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[c] = cut
	s.meter.Calls++
}

func (s *Session) end(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, c)
}

// use adds to the meter what c has used since the last time, and what that costs. It
// reports whether that spent the budget; then it cuts every other call.
func (s *Session) use(c *call, more jobs.Usage, usd float64, priced bool) bool {
	if s.add(c.result.Model, more, usd, priced) && s.Unpriced != nil {
		s.Unpriced(c.result.Model)
	}
	news, spent := c.hold.use(budget.Amount{USD: c.cost, Tokens: c.used.Total()})
	if spent != nil {
		s.exhaust(spent)
	}
	if (news.Warned || news.Spent) && s.Budget != nil {
		s.Budget(news.Spent)
	}
	if news.Spent || spent != nil {
		s.cut(c)
	}
	return news.Spent
}

// maxUnknown bounds how many models without a price are told.
const maxUnknown = 10

// add changes the meter. It reports whether the model is one of the first without a price.
func (s *Session) add(model string, more jobs.Usage, usd float64, priced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.Usage = s.meter.Usage.Add(more)
	s.meter.CostUSD += usd
	s.meter.Model = model
	if priced {
		return false
	}
	s.meter.Unpriced += more.Total()
	if s.unknown[model] || len(s.unknown) >= maxUnknown {
		return false
	}
	s.unknown[model] = true
	return true
}

// cut ends every call but one.
func (s *Session) cut(but *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, cut := range s.calls {
		if other != but {
			cut(errSpent)
		}
	}
}

// Allowed describes the budget, for the message that says it is spent.
func (s *Session) Allowed() string {
	switch l := s.limits; {
	case l.Tokens > 0 && l.USD > 0:
		return fmt.Sprintf("%d tokens or %v USD", l.Tokens, l.USD)
	case l.USD > 0:
		return fmt.Sprintf("%v USD", l.USD)
	default:
		return fmt.Sprintf("%d tokens", l.Tokens)
	}
}
