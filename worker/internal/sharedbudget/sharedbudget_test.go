package sharedbudget

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/worker/internal/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A book is a ledger that can be away.
type book struct {
	Ledger
	away  atomic.Bool
	spent ledger.Amount
}

var errAway = errors.New("no broker")

func (b *book) Budgets(context.Context) (ledger.Budgets, error) {
	return ledger.Budgets{{Key: "key:main", Amount: ledger.Amount{USD: 9}, Per: "day"}, {Key: "key:later", Amount: ledger.Amount{USD: 1}, Per: "day"}, {Key: "queue:other", Amount: ledger.Amount{USD: 1}, Per: "day"}}, nil
}

func (b *book) Spent(ctx context.Context, _ ledger.Budget, _ time.Time) (ledger.Amount, error) {
	if b.away.Load() {
		<-ctx.Done()
		return ledger.Amount{}, errAway
	}
	return b.spent, nil
}

func (b *book) Add(ctx context.Context, _ ledger.Budget, _ time.Time, more ledger.Amount) error {
	if b.away.Load() {
		<-ctx.Done()
		return errAway
	}
	b.spent.USD, b.spent.Tokens = b.spent.USD+more.USD, b.spent.Tokens+more.Tokens
	return nil
}

// A worker alone uses a tenth of what it saw left, and waits then; all of it is added when
// the broker is back.
func TestWithoutTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{spent: ledger.Amount{USD: 20}}
		p := &Purse{ledger: b, of: ledger.Budget{Key: "pool", Amount: ledger.Amount{USD: 100}, Per: "day"}}
		left := func() (float64, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l, err := p.Left(ctx)
			return l.USD, err
		}
		if got, err := left(); got != 80 || err != nil {
			t.Errorf("%v is left, err %v", got, err)
		}
		b.away.Store(true)
		if got, err := left(); got != 8 || err != nil {
			t.Errorf("alone: %v is left, err %v", got, err)
		}
		p.Settle(budget.Amount{USD: 5})
		if got, err := left(); got != 3 || err != nil {
			t.Errorf("alone, after 5: %v is left, err %v", got, err)
		}
		p.Settle(budget.Amount{USD: 4})
		if _, err := left(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("alone, after 9: err %v, want it to wait", err)
		}
		time.AfterFunc(10*time.Second, func() { b.away.Store(false) })
		if got, err := left(); got != 71 || err != nil {
			t.Errorf("with the broker again: %v is left, err %v", got, err)
		}
		Set{p}.Flush()
		if b.spent.USD != 29 {
			t.Errorf("the broker has %v", b.spent)
		}
		p.Settle(budget.Amount{USD: 71})
		if _, err := left(); !errors.Is(err, budget.ErrSpent) {
			t.Errorf("all is spent: err %v", err)
		}
		b.away.Store(true)
		fresh := &Purse{ledger: b, of: p.of}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := fresh.Left(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("never seen: err %v, want it to wait", err)
		}
	})
}

// The budget of a key binds the sessions, too, that run when their worker gets the key. Before that nobody waits for it.
func TestTheBudgetOfAKeyThatComesLater(t *testing.T) {
	b := &book{spent: ledger.Amount{USD: 5}}
	set, err := Afford(t.Context(), b, Job{API: "anthropic", Keys: []string{"main"}})
	if err != nil {
		t.Fatal(err)
	}
	all, keyed := set.Purses()
	if len(all) != 0 || len(keyed) != 2 || len(keyed["main"]) != 1 || len(keyed["later"]) != 1 {
		t.Fatalf("%d budgets of all calls, those of keys are %v", len(all), keyed)
	}
	if _, err := keyed["main"][0].Left(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := keyed["later"][0].Left(t.Context()); !errors.Is(err, budget.ErrSpent) {
		t.Errorf("got %v, want that it is spent", err)
	}
	if _, err := Afford(t.Context(), b, Job{API: "anthropic", Keys: []string{"later"}}); err == nil {
		t.Error("a job begins whose only key has spent its budget")
	}
}
