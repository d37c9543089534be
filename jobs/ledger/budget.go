// Package ledger keeps the budgets that jobs share, and what was spent of each: those of a
// queue, of a key of a model API, of the whole pool, and of a batch.
//
//	serve --budget ──▶ SetBudgets ──▶ bucket of settings ──▶ workers, for each job they begin
//	a call has ended ──▶ Add, by compare-and-set ──▶ bucket of permits ──▶ Spent, before each call
//
// What was spent is on the broker, so that it outlives workers and servers. It has one
// number for each period of a budget, and forgets it after forty days.
package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// An Amount is in US dollars and in tokens.
type Amount struct {
	USD    float64 `json:"usd,omitempty"`
	Tokens int64   `json:"tokens,omitempty"`
}

// A Budget bounds what jobs that have something in common spend together, in each period.
// Its Key says what they have in common:
//
//	queue:NAME   key:API   key:NAME   pool   batch:ID
//
// The name of a key is one of the settings of workers.
type Budget struct {
	Key    string `json:"key"`
	Amount `json:"limit"`
	Per    string `json:"per,omitempty"` // hour, day or month, by UTC; empty: for ever
}

// MaxBudgets bounds how many budgets a pool may have.
const MaxBudgets = 100

// Parse reads a budget as people write it: KEY=AMOUNT/PERIOD, with an amount in dollars or
// in tokens, as in queue:slow=50/day and pool=2000000tokens/hour.
func Parse(s string) (Budget, error) {
	at := strings.LastIndexByte(s, '=')
	amount, per, ok := strings.Cut(s[at+1:], "/")
	if at < 0 || !ok {
		return Budget{}, fmt.Errorf("%q is not KEY=AMOUNT/PERIOD, as in queue:default=50/day or pool=2000000tokens/day", s)
	}
	b := Budget{Key: s[:at], Per: per}
	var err error
	if tokens, isTokens := strings.CutSuffix(amount, "tokens"); isTokens {
		b.Tokens, err = strconv.ParseInt(tokens, 10, 64)
	} else {
		b.USD, err = strconv.ParseFloat(amount, 64)
	}
	if err != nil {
		return Budget{}, fmt.Errorf("%q: %q is neither dollars nor a whole number of tokens", s, amount)
	}
	return b, b.check()
}

func (b Budget) check() error {
	kind, name, _ := strings.Cut(b.Key, ":")
	known := b.Key == "pool" || (kind == "queue" || kind == "key") && name != ""
	switch {
	case !known || len(b.Key) > 256:
		return fmt.Errorf("budget %.300q: use queue:NAME, key:API (anthropic, openai or google), key:NAME (of model.keys), or pool", b.Key)
	case b.Per != "hour" && b.Per != "day" && b.Per != "month":
		return fmt.Errorf("budget %q: %q is not hour, day or month", b.Key, b.Per)
	case math.IsNaN(b.USD) || b.USD < 0 || b.USD > 1e9 || b.Tokens < 0 || b.USD == 0 && b.Tokens == 0:
		return fmt.Errorf("budget %q: the amount is not above 0; to let nothing run, pause the queue", b.Key)
	}
	return nil
}

// keyName is the key or the API that the budget is of; empty: it is of something else.
func (b Budget) keyName() string {
	name, _ := strings.CutPrefix(b.Key, "key:")
	if name == b.Key {
		return ""
	}
	return name
}

// period names the period of a time.
func (b Budget) period(at time.Time) string {
	forms := map[string]string{"hour": "2006-01-02T15", "day": "2006-01-02", "month": "2006-01"}
	return at.UTC().Format(cmp.Or(forms[b.Per], ""))
}

// Next returns when the period of a time is over; zero: never.
func (b Budget) Next(at time.Time) time.Time {
	at = at.UTC()
	y, m, d := at.Date()
	switch b.Per {
	case "hour":
		return at.Truncate(time.Hour).Add(time.Hour)
	case "day":
		return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
	case "month":
		return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}
}

// String writes a budget as Parse reads it.
func (b Budget) String() string {
	amount := strconv.FormatFloat(b.USD, 'f', -1, 64)
	if b.USD == 0 {
		amount = strconv.FormatInt(b.Tokens, 10) + "tokens"
	}
	if b.Per == "" {
		return b.Key + "=" + amount
	}
	return b.Key + "=" + amount + "/" + b.Per
}

// Budgets are those of a pool.
type Budgets []Budget

// ParseAll reads many budgets. A key may have one in dollars and one in tokens, of the
// same period.
func ParseAll(texts []string) (Budgets, error) {
	var all Budgets
	for _, s := range texts {
		b, err := Parse(s)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(other Budget) bool { return other.Key == b.Key })
		switch {
		case i < 0:
			all = append(all, b)
		case all[i].Per != b.Per || (all[i].USD > 0) == (b.USD > 0):
			return nil, fmt.Errorf("budget %q is there twice; a key has one in dollars and one in tokens, of one period", b.Key)
		default:
			all[i].USD, all[i].Tokens = all[i].USD+b.USD, all[i].Tokens+b.Tokens
		}
	}
	return all, all.Check()
}

// Check reports what is wrong with the budgets.
func (all Budgets) Check() error {
	if len(all) > MaxBudgets {
		return fmt.Errorf("%d budgets: at most %d are allowed", len(all), MaxBudgets)
	}
	var errs []error
	for _, b := range all {
		errs = append(errs, b.check())
	}
	return errors.Join(errs...)
}

// Of returns the budgets that bind a job: those of the pool, of the API that its agent uses and
// of the names of the keys that it may be called with, and that of the job's batch.
func (all Budgets) Of(rec jobs.Record, job jobs.Job, keys ...string) Budgets {
	var found Budgets
	for _, b := range all {
		if b.Key == "pool" || b.Key == "queue:"+rec.Queue || slices.Contains(keys, b.keyName()) {
			found = append(found, b)
		}
	}
	if limit := (Amount{job.Budget.BatchUSD, job.Budget.BatchTokens}); limit != (Amount{}) && rec.Batch != "" {
		found = append(found, Budget{Key: "batch:" + rec.Batch, Amount: limit})
	}
	return found
}
