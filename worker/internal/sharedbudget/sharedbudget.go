// Package sharedbudget spends budgets that jobs share: it reads what is left of each from
// the broker before a call, and adds what the call has used.
//
// A worker that cannot reach the broker goes on with a tenth of what it has seen left, and
// waits then until the broker is back. What it could not add it adds later.
package sharedbudget

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/worker/internal/budget"
)

const (
	patience = 2 * time.Second // that the broker has for an answer
	again    = time.Second     // until it is asked once more
	alone    = 0.1             // of what was left may be spent without it
)

// Ledger is that of the pool; see [ledger.Ledger].
type Ledger interface {
	Budgets(ctx context.Context) (ledger.Budgets, error)
	Spent(ctx context.Context, b ledger.Budget, at time.Time) (ledger.Amount, error)
	Add(ctx context.Context, b ledger.Budget, at time.Time, more ledger.Amount) error
}

// A Purse is one budget, as one job spends it. Its methods may be called from any
// goroutine.
type Purse struct {
	ledger Ledger
	of     ledger.Budget
	key    string // whose budget it is; empty: every call's

	mu      sync.Mutex
	seen    budget.Amount // what was left when the broker last answered; guarded by mu
	known   bool          // it has answered; guarded by mu
	since   budget.Amount // what was used since then; guarded by mu
	pending budget.Amount // what was not added yet; guarded by mu
}

// Name implements gate.Purse.
func (p *Purse) Name() string { return p.of.String() }

// Left implements gate.Purse.
func (p *Purse) Left(ctx context.Context) (budget.Amount, error) {
	for {
		left, err := p.ask(ctx)
		if err == nil {
			return left, spent(p.of, left)
		}
		if left, ok := p.alone(); ok {
			return left, nil
		}
		if !pause.For(ctx, again) {
			return budget.Amount{}, context.Cause(ctx)
		}
	}
}

// spent returns [budget.ErrSpent] if nothing is left of one of the limits.
func spent(of ledger.Budget, left budget.Amount) error {
	if of.USD > 0 && left.USD <= 0 || of.Tokens > 0 && left.Tokens <= 0 {
		return budget.ErrSpent
	}
	return nil
}

// Nearly implements gate.Purse.
func (p *Purse) Nearly() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := budget.Amount{USD: p.of.USD, Tokens: p.of.Tokens}
	return p.known && limit.Less(p.seen).Add(p.since).MostOf(limit)
}

// ask returns what is left by the broker.
func (p *Purse) ask(ctx context.Context) (budget.Amount, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.flush(ctx)
	used, err := p.ledger.Spent(ctx, p.of, time.Now())
	if err != nil {
		return budget.Amount{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := budget.Amount{USD: used.USD, Tokens: used.Tokens}.Add(p.pending)
	p.seen, p.known, p.since = budget.Amount{USD: p.of.USD, Tokens: p.of.Tokens}.Less(all), true, budget.Amount{}
	return p.seen, nil
}

// alone returns what the worker may use without the broker, and whether that is anything.
func (p *Purse) alone() (budget.Amount, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := budget.Amount{USD: alone * p.seen.USD, Tokens: int64(alone * float64(p.seen.Tokens))}.Less(p.since)
	return left, p.known && spent(p.of, left) == nil
}

// Settle implements gate.Purse.
func (p *Purse) Settle(used budget.Amount) {
	p.put(used, used)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.flush(ctx)
}

// put changes what was used since the broker answered, and what it does not know.
func (p *Purse) put(since, pending budget.Amount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.pending = p.since.Add(since), p.pending.Add(pending)
}

// flush adds what the broker does not know. If it does not answer, the amount may be there
// twice in the end, never less than once.
func (p *Purse) flush(ctx context.Context) {
	more := p.take()
	if more == (budget.Amount{}) {
		return
	}
	if p.ledger.Add(ctx, p.of, time.Now(), ledger.Amount{USD: more.USD, Tokens: more.Tokens}) != nil {
		p.put(budget.Amount{}, more)
	}
}

func (p *Purse) take() budget.Amount {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := p.pending
	p.pending = budget.Amount{}
	return more
}
