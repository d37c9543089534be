package gate

import (
	"context"
	"errors"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/budget"
)

// A Purse is a budget that sessions share, also those of other workers.
type Purse interface {
	// Name says which budget it is, for people.
	Name() string
	// Left returns what is left of it; what has no limit is 0. The error is
	// [budget.ErrSpent] if nothing is left of one of its limits.
	Left(ctx context.Context) (budget.Amount, error)
	// Nearly reports whether most of it was spent when Left returned last.
	Nearly() bool
	// Settle adds what a call has used. It does not fail: what it cannot store it stores
	// later.
	Settle(used budget.Amount)
}

// A share is a session's part of a purse: its calls reserve from what is left for all. So
// each session may exceed it by one answer.
type share struct {
	purse   Purse
	account *budget.Account
	warned  *sync.Once
}

func sharesOf(purses []Purse) []*share {
	var all []*share
	for _, p := range purses {
		all = append(all, &share{p, budget.New(budget.Amount{}, budget.Amount{}), new(sync.Once)})
	}
	return all
}

// A reservation is what a call has reserved of each budget.
type reservation struct {
	own    *budget.Hold
	shared []sharedHold
	keyed  []sharedHold // of the key with which the call is made
}

type sharedHold struct {
	of   *share
	hold *budget.Hold
	used *budget.Amount
}

// A spentError says that a budget is spent that the session shares.
type spentError struct{ of Purse }

func (e spentError) Error() string { return "the budget " + e.of.Name() + " is spent" }

// Unwrap makes it a [budget.ErrSpent].
func (e spentError) Unwrap() error { return budget.ErrSpent }

// reserveAll reserves from budgets that the session shares; from all of them, or from none.
func (s *Session) reserveAll(ctx context.Context, shares []*share, most budget.Amount) (holds []sharedHold, err error) {
	defer func() {
		if err != nil {
			releaseAll(holds)
			holds = nil
		}
	}()
	for _, sh := range shares {
		left, err := sh.purse.Left(ctx)
		if errors.Is(err, budget.ErrSpent) {
			return holds, spentError{sh.purse}
		}
		if err != nil {
			return holds, err // of the agent, which has hung up, if nothing is spent
		}
		if s.Nearly != nil && sh.purse.Nearly() {
			sh.warned.Do(func() { s.Nearly(sh.purse) })
		}
		sh.account.Allow(left)
		h, err := sh.account.Reserve(ctx, most)
		if err != nil {
			return holds, err
		}
		holds = append(holds, sharedHold{sh, h, &budget.Amount{}})
	}
	return holds, nil
}

// overspent ends the session if an error says that a budget is spent that it shares.
func (s *Session) overspent(err error) {
	if e, ok := errors.AsType[spentError](err); ok {
		s.exhaust(e.of)
	}
}

// use tells each budget what the call has used so far. It returns what is new of the
// session's own one, and the shared one that this spent; nil: none.
func (r reservation) use(total budget.Amount) (news budget.News, spent Purse) {
	for _, h := range r.keyed {
		*h.used = total
		h.hold.Use(total) // what comes next goes on with another key, if there is one
	}
	for _, h := range r.shared {
		*h.used = total
		if h.hold.Use(total).Spent {
			spent = h.of.purse
		}
	}
	return r.own.Use(total), spent
}

// release gives back what the call did not use, and settles what it did.
func (r reservation) release() {
	if r.own != nil {
		r.own.Release()
	}
	releaseAll(r.shared)
	releaseAll(r.keyed)
}

func releaseAll(holds []sharedHold) {
	for _, h := range holds {
		h.of.purse.Settle(*h.used)
		h.hold.Release()
	}
}

// exhaust ends the session because a budget is spent that it shares.
func (s *Session) exhaust(p Purse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = p
		close(s.shared)
	}
}

// SharedSpent returns a channel that is closed once a budget is spent that the session
// shares.
func (s *Session) SharedSpent() <-chan struct{} { return s.shared }

// Exhausted returns the shared budget that is spent; nil: none.
func (s *Session) Exhausted() Purse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// spentBudget describes the budget that is spent.
func (s *Session) spentBudget() string {
	if p := s.Exhausted(); p != nil {
		return "the budget " + p.Name()
	}
	return "the budget of " + s.Allowed()
}
