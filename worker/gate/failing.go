package gate

import (
	"cmp"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A Failure says how the model API fails for a session: the last of the calls that
// failed in a row. Calls that do not ask a model, such as those that count tokens, do
// not count.
type Failure struct {
	jobs.APIFailure
	Row int // how many failed; 0: the last one did not
	// Answered: a call of this run of the agent was answered.
	Answered bool
	// Again is when the API asked to retry; zero: it did not say.
	Again time.Time
}

// Doubt returns how a run of an agent has ended, by what it says itself. The Agent Client Protocol has
// no word for a turn that failed: agents of it tell the refusal of their model's provider as if it
// were an answer. No agent has done what it was asked with a model that answered nothing.
func (f Failure) Doubt(own jobs.Ended) jobs.Ended {
	if own.Outcome == jobs.Success && f.Row > 0 && !f.Answered {
		return jobs.AgentFailed.Ended("the agent ended as after a success, and its model API had answered no call")
	}
	return own
}

// Failing returns the current failures of the model API.
func (s *Session) Failing() Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

// Forgive resets the failures, because another run of the agent begins.
func (s *Session) Forgive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = Failure{}
}

// errGone means that the agent stopped reading its answer, which is no failure of the
// API.
var errGone = errors.New("the agent hung up")

// judge records whether the model API failed the call.
func (c *call) judge(gone bool) {
	if !c.route.Asks || gone || errors.Is(c.result.Err, errGone) || errors.Is(c.result.Err, errSpent) {
		return
	}
	f := jobs.APIFailure{Status: c.result.Status}
	if c.count != nil {
		f.Kind = c.count.Kind()
	}
	broken := c.result.Err != nil && f.Status < 400 // within its answer
	if broken {
		f.Kind = cmp.Or(f.Kind, "api_error")
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !broken && f.Kind == "" && f.Status < 400 {
		c.s.failing = Failure{Answered: true}
		return
	}
	next := Failure{APIFailure: f, Row: c.s.failing.Row + 1, Answered: c.s.failing.Answered}
	if c.result.RetryAfter > 0 {
		next.Again = time.Now().Add(c.result.RetryAfter)
	}
	c.s.failing = next
}
