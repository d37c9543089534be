// Package budget bounds what calls that run at once may spend together, before they are
// made.
//
// What a call costs is known when it has ended. So each reserves the most that it can cost
// before it begins, and gives back what it did not use:
//
//	Reserve ─▶ fits what is left, or is alone ─▶ Use, as it becomes known ─▶ Release
//	              │ else it waits for the others
//	              └ nothing is left: ErrSpent
//
// A call that may cost more than what is left is made when no other one is under way.
// Otherwise no budget could ever be used up: what calls can cost at the most is many times
// what they do. So an account is exceeded by one call at the most, and by none if that one
// costs no more than what was left.
//
// Calls are admitted in the order in which they come. No I/O.
package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrSpent means that nothing is left.
var ErrSpent = errors.New("budget is spent")

// warnAt is the part of a limit at which most of it is spent.
const warnAt = 0.8

// An Amount is in money and in tokens.
type Amount struct {
	USD    float64
	Tokens int64
}

// Add returns the sum of both.
func (a Amount) Add(b Amount) Amount { return Amount{a.USD + b.USD, a.Tokens + b.Tokens} }

// Less returns what is left of a beyond b, and no less than nothing.
func (a Amount) Less(b Amount) Amount {
	return Amount{max(a.USD-b.USD, 0), max(a.Tokens-b.Tokens, 0)}
}

// within reports whether a exceeds limit in nothing; a limit of zero is none.
func (a Amount) within(limit Amount) bool {
	return (limit.USD <= 0 || a.USD <= limit.USD) && (limit.Tokens <= 0 || a.Tokens <= limit.Tokens)
}

// reaches reports whether a has reached a part of limit in anything.
func (a Amount) reaches(limit Amount, part float64) bool {
	return limit.USD > 0 && a.USD >= part*limit.USD || limit.Tokens > 0 && float64(a.Tokens) >= part*float64(limit.Tokens)
}

// MostOf reports whether a is most of a limit, four fifths, of its money or of its tokens.
func (a Amount) MostOf(limit Amount) bool { return a.reaches(limit, warnAt) }

// An Account is a budget, and what was spent of it. Its methods may be called from any
// goroutine.
type Account struct {
	over chan struct{} // closed once the limit is reached

	mu      sync.Mutex
	limit   Amount  // guarded by mu
	spent   Amount  // guarded by mu
	held    []*Hold // guarded by mu
	waiting []*Hold // in their order; guarded by mu
	settled Amount  // of spent, by calls that have ended; guarded by mu
	warned  bool    // guarded by mu
	ended   bool    // over is closed; guarded by mu
}

// New returns an account. A part of limit that is zero is no limit; so much of it was spent
// before.
func New(limit, spent Amount) *Account {
	a := &Account{limit: limit, spent: spent, over: make(chan struct{})}
	a.warned = spent.reaches(limit, warnAt)
	a.end()
	return a
}

// Allow lets so much be spent beyond what was settled, of a budget that others use, too:
// what is left of it for all. A part that is zero is no limit. Where the limit was reached,
// it stays so.
func (a *Account) Allow(left Amount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = a.settled.Add(left)
	if left.USD <= 0 {
		a.limit.USD = 0
	}
	if left.Tokens <= 0 {
		a.limit.Tokens = 0
	}
	a.end()
	a.admit()
}

// Spent returns a channel that is closed once the limit is reached.
func (a *Account) Spent() <-chan struct{} { return a.over }

// end closes over if the limit is reached. The caller holds mu, or is alone. It reports
// whether that is news.
func (a *Account) end() bool {
	if a.ended || !a.spent.reaches(a.limit, 1) {
		return false
	}
	a.ended = true
	close(a.over)
	return true
}

// A Hold is what one call has reserved. The zero value has reserved nothing.
type Hold struct {
	of      *Account
	most    Amount
	used    Amount        // guarded by of.mu
	refused bool          // guarded by of.mu until admitted is closed
	decided chan struct{} // closed when it is admitted or refused
}

// Reserve returns a hold of the most that a call can use, as soon as that may begin. The
// error is ErrSpent if nothing is left, or that of ctx.
func (a *Account) Reserve(ctx context.Context, most Amount) (*Hold, error) {
	h := &Hold{of: a, most: most, decided: make(chan struct{})}
	a.enter(h)
	select {
	case <-h.decided:
	case <-ctx.Done():
		h.Release()
		return nil, context.Cause(ctx)
	}
	if h.refused {
		return nil, ErrSpent
	}
	return h, nil
}

func (a *Account) enter(h *Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, h)
	a.admit()
}

// admit decides on those that wait, in their order. The caller holds mu.
func (a *Account) admit() {
	for len(a.waiting) > 0 {
		h := a.waiting[0]
		h.refused = a.ended
		if !h.refused && len(a.held) > 0 && !a.reserved().Add(h.most).within(a.limit) {
			return
		}
		if !h.refused {
			a.held = append(a.held, h)
		}
		a.waiting = a.waiting[1:]
		close(h.decided)
	}
}

// reserved is what was spent, and what the calls under way may still spend.
func (a *Account) reserved() Amount {
	sum := a.spent
	for _, h := range a.held {
		sum = sum.Add(h.most.Less(h.used))
	}
	return sum
}

// News says what a use of an account has changed.
type News struct {
	Warned bool // most of the limit is spent now
	Spent  bool // all of it is
}

// Use says how much the call has used so far. That may be more than was reserved, and
// does not fall.
func (h *Hold) Use(total Amount) News {
	a := h.of
	a.mu.Lock()
	defer a.mu.Unlock()
	more := total.Less(h.used)
	h.used = h.used.Add(more)
	a.spent = a.spent.Add(more)
	n := News{Warned: !a.warned && a.spent.reaches(a.limit, warnAt)}
	a.warned = a.warned || n.Warned
	n.Spent = a.end()
	a.admit()
	return n
}

// Release ends the hold. What was not used is free for other calls.
func (h *Hold) Release() {
	a := h.of
	a.mu.Lock()
	defer a.mu.Unlock()
	is := func(other *Hold) bool { return other == h }
	if slices.Contains(a.held, h) {
		a.settled = a.settled.Add(h.used)
	}
	a.held = slices.DeleteFunc(a.held, is)
	a.waiting = slices.DeleteFunc(a.waiting, is)
	a.admit()
}
