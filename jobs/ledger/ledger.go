package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/presence"
)

// keptFor is how long what was spent is kept after it was last changed.
const keptFor = 40 * 24 * time.Hour

// A Ledger is that of a pool.
type Ledger struct{ conn *wire.Conn }

// Of returns the ledger of a pool, by the connection of its workers.
func Of(w presence.Workers) Ledger { return Ledger{w.Conn} }

// budgetsKey is where the budgets of a pool are.
func budgetsKey() string { return subject.Key(subject.Settings, "budgets") }

// Budgets returns the budgets of the pool.
func (l Ledger) Budgets(ctx context.Context) (Budgets, error) {
	m, err := l.conn.Last(ctx, subject.KVStream(subject.Settings), budgetsKey())
	if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
		return nil, nil
	}
	var all Budgets
	if err == nil {
		err = json.Unmarshal(m.Data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the budgets: %w", err)
	}
	return all, nil
}

// SetBudgets replaces the budgets of the pool. Workers take notice of them with the next
// job that they begin.
func (l Ledger) SetBudgets(ctx context.Context, all Budgets) error {
	if err := all.Check(); err != nil {
		return err
	}
	is, err := l.Budgets(ctx)
	if err == nil && !slices.Equal(is, all) {
		msg := nats.NewMsg(budgetsKey())
		if msg.Data, err = json.Marshal(all); err == nil {
			err = l.conn.Publish(ctx, msg)
		}
	}
	if err != nil {
		return fmt.Errorf("set the budgets: %w", err)
	}
	return nil
}

// An entry is what was spent of a budget in one of its periods.
type entry struct {
	Key    string  `json:"key"`
	Period string  `json:"period,omitempty"`
	USD    float64 `json:"usd"`
	Tokens int64   `json:"tokens"`
}

// Spent returns what was spent of a budget in the period of a time.
func (l Ledger) Spent(ctx context.Context, b Budget, at time.Time) (Amount, error) {
	_, e, err := l.read(ctx, b, at)
	return Amount{e.USD, e.Tokens}, err
}

// atOnce is how many budgets are read at the same time.
const atOnce = 16

// SpentOfAll returns what was spent of each of many budgets in the period of a time.
func (l Ledger) SpentOfAll(ctx context.Context, all Budgets, at time.Time) ([]Amount, error) {
	spent := make([]Amount, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, b := range all {
		g.Go(func() (err error) {
			spent[i], err = l.Spent(ctx, b, at)
			return err
		})
	}
	return spent, g.Wait()
}

// Add adds to what was spent of a budget in the period of a time. When it returns an error
// other than that of its first attempt to write, the amount may have been added.
func (l Ledger) Add(ctx context.Context, b Budget, at time.Time, more Amount) error {
	for {
		w, e, err := l.read(ctx, b, at)
		if err != nil {
			return err
		}
		e.USD, e.Tokens = jobs.AddUSD(e.USD, more.USD), e.Tokens+max(more.Tokens, 0)
		if w.Data, err = json.Marshal(e); err != nil {
			return err
		}
		w.TTL = keptFor
		if _, err = l.conn.Put(ctx, w); !errors.Is(err, wire.ErrConflict) {
			return err
		}
	}
}

// read returns what was spent, and the write that would replace it.
func (l Ledger) read(ctx context.Context, b Budget, at time.Time) (wire.Write, entry, error) {
	e := entry{Key: b.Key, Period: b.period(at)}
	w := wire.Write{Stream: subject.KVStream(subject.Permits), Subject: subject.Permit(jobs.HashKey("budget", e.Key+" "+e.Period))}
	m, err := l.conn.Last(ctx, w.Stream, w.Subject)
	if errors.Is(err, jobs.ErrNotFound) {
		return w, e, nil
	}
	w.Expect = m.Seq
	if err == nil && !m.Gone() {
		key, period := e.Key, e.Period
		if err = json.Unmarshal(m.Data, &e); err == nil && (e.Key != key || e.Period != period) {
			err = fmt.Errorf("is that of %s %s", e.Key, e.Period)
		}
	}
	if err != nil {
		return w, e, fmt.Errorf("what was spent of budget %s: %w", b.Key, err)
	}
	return w, e, nil
}
