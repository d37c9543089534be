package gate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/endpoint"
	"github.com/penstock-run/penstock/worker/internal/governor"
	"github.com/penstock-run/penstock/worker/internal/modelapi"
)

const (
	// maxError is how much of an error's body is read.
	maxError = 64 << 10
	// maxRefused is how often one call is refused before the agent hears of it: what it
	// asks may never be accepted.
	maxRefused = 8
	// partTime is how long a held call waits for its session to end.
	partTime = 30 * time.Second
)

// A Hold says until when no call can be made, and why; see [Session.Held].
type Hold = governor.HeldError

// A Standing says how it is with the key of a gate.
type Standing = governor.Standing

// Admit reports whether a job of a queue may begin whose agent was told to use a model; empty:
// its own. The error is a [*Hold] if its first call would wait for too long with each key.
func (g *Gate) Admit(queue, model string) error {
	set := g.Governors(queue)
	if len(set) == 0 {
		return nil
	}
	return set.Admit(model, g.cfg.Patience)
}

// Held returns a channel that is closed once a call of the session would have to wait for
// longer than its agent does.
func (s *Session) Held() <-chan struct{} { return s.held }

// Hold returns why; nil: none has to.
func (s *Session) Hold() *Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold
}

func (s *Session) setHold(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold == nil {
		s.hold = h
		close(s.held)
	}
}

// patience is how long calls of the session may wait before they are made.
func (c *call) patience() time.Duration {
	if p := c.s.limits.Patience; p > 0 {
		return min(p, c.g.cfg.Patience)
	}
	return c.g.cfg.Patience
}

// ask makes the call, as soon as the limits of the provider allow it, and again where that
// refuses it all the same. Sent: the last request has been sent.
func (c *call) ask(ctx context.Context, r *http.Request, body []byte) (res *http.Response, sent bool, err error) {
	arrived := time.Now()
	for tries := 1; ; tries++ {
		if err = c.enter(ctx, arrived); err != nil {
			return nil, false, err
		}
		c.answer = governor.Answer{}
		trace := &sentTrace{}
		res, err = c.send(trace.in(ctx), r, body)
		if errors.Is(err, endpoint.ErrRefused) && c.key.Governor != nil && (c.others() || !c.g.cfg.PassRefused) {
			c.done()
			c.key.Governor.Refuse(err.Error())
			continue
		}
		if err == nil {
			err = acceptable(res)
		}
		if err != nil {
			if res != nil {
				_ = res.Body.Close()
			}
			return nil, trace.was(), err
		}
		if !c.learn(ctx, res, tries) {
			return res, true, nil
		}
		_ = res.Body.Close() // it was read
	}
}

// send makes the call with its key.
func (c *call) send(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	out, err := c.request(ctx, r, body)
	if err != nil {
		return nil, err
	}
	res, err := c.key.Client.RoundTrip(out)
	if err == nil {
		c.key.Endpoint.Answer(res)
		c.secrets = c.key.Endpoint.Secrets()
	}
	return res, err
}

// learn tells the governor what the head of an answer says. It reports whether the call is
// to be made again, with this key or another.
func (c *call) learn(ctx context.Context, res *http.Response, tries int) (again bool) {
	if c.key.Governor == nil || !c.route.Asks {
		return false
	}
	now := time.Now()
	c.pass.Heard(governor.Rooms(res.Header, now))
	if res.StatusCode < 400 {
		c.answer.Kind = governor.Served
		c.s.stays(c.key.Governor)
		return false
	}
	head, err := io.ReadAll(io.LimitReader(res.Body, maxError))
	res.Body = both{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	if err != nil {
		return false
	}
	c.answer.Wait = governor.Wait(res.Header, head, now)
	failure := jobs.APIFailure{Status: res.StatusCode, Kind: modelapi.ErrorKind(head)}
	c.answer.Kind = kindOf(failure, c.answer.Wait)
	others := c.others()
	switch refuses := refusesKey(failure, c.answer.Wait); {
	case refuses && tries == 1 && c.key.Endpoint.Renews(res):
		c.done()
		return true
	case refuses && (others || !c.g.cfg.PassRefused) && c.confirm(ctx, failure):
		c.done()
		c.key.Governor.Refuse(fmt.Sprintf("status %d, %s", failure.Status, cmp.Or(failure.Kind, "no reason")))
		return true
	case !refuses && others && failure.Reason() == jobs.Unauthorized:
		c.done()
		c.s.choice.deny(denial{c.key.Governor, c.asks.Model})
		return true
	case c.answer.Kind == governor.Other, tries >= maxRefused*len(c.g.ring.Now().All()), res.Header.Get("X-Should-Retry") == "false" && !others:
		return false
	}
	c.s.note(func(m *Meter) {
		if c.answer.Kind == governor.Limited {
			m.Limited++
		} else {
			m.Failed++
		}
	})
	c.done()
	return true
}

// done ends the call for the governor.
func (c *call) done() {
	c.pass.Done(c.asks.Model, c.answer)
	c.pass = governor.Pass{}
}

// both reads from one, and closes the other.
type both struct {
	io.Reader
	io.Closer
}

// kindOf says what a failure means for the limits.
func kindOf(f jobs.APIFailure, wait time.Duration) governor.Kind {
	switch why := f.Reason(); {
	case why == jobs.RateLimited, why == jobs.Billing && f.Status == http.StatusTooManyRequests && wait > 0:
		return governor.Limited // a quota that begins anew
	case why == jobs.ModelUnavailable && (f.Status == 529 || f.Status == http.StatusServiceUnavailable || f.Kind == "overloaded_error"):
		return governor.Overloaded
	}
	return governor.Other
}

// refusesKey reports whether a failure is of the key, whatever is asked with it.
func refusesKey(f jobs.APIFailure, wait time.Duration) bool {
	switch f.Reason() {
	case jobs.Unauthorized:
		// Without permission for something other things may work.
		return f.Status == http.StatusUnauthorized || f.Kind != "" && f.Kind != "permission_error" && f.Kind != "PERMISSION_DENIED"
	case jobs.Billing:
		return wait == 0
	}
	return false
}

// confirm asks for the list of models, which has nothing in it that the agent has written: a key that
// is accepted for it is not refused because an agent has sent something odd. It says
// nothing of an account's credit.
func (c *call) confirm(ctx context.Context, f jobs.APIFailure) bool {
	if f.Reason() != jobs.Unauthorized || !c.key.Endpoint.Lists() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.g.api.List, nil)
	if err != nil {
		return true
	}
	r.Header.Set("Anthropic-Version", "2023-06-01") // only that one passes it on
	asked := c.query
	c.query = ""
	defer func() { c.query = asked }()
	res, err := c.send(ctx, r, nil)
	if err != nil {
		return true
	}
	_ = res.Body.Close() // only its status counts
	return res.StatusCode >= 300
}

// part lets a call wait whose session is held: it ends with its agent, which must not see a
// failure that it would remember.
func (c *call) part(ctx context.Context, w http.ResponseWriter, h *Hold) {
	c.s.setHold(h)
	c.result.Err, c.result.Took = h, time.Since(c.began)
	if c.g.cfg.Hooks.Called != nil {
		c.g.cfg.Hooks.Called(c.s.id, c.result)
	}
	select {
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	case <-time.After(partTime):
		c.g.refuse(w, http.StatusTooManyRequests, "rate_limit_error", "penstock: "+h.Error())
	}
}

// heldBy returns the hold that an error is; nil: it is another.
func heldBy(err error) *Hold {
	h, _ := errors.AsType[*Hold](err)
	return h
}
