// Package quota refuses jobs of those who have as many open as they may.
//
//	submit ─▶ Door.Admit ─▶ the leader: open jobs and reservations below each quota?
//	                          ├─ yes: a reservation, until the leader sees the record
//	                          └─ no:  [jobs.QuotaError], and nothing is kept
//
// Only the leader counts, so that no quota is exceeded by dispatchers that accept jobs at the same
// time. It counts the jobs that quotas are about, as it sees their records change; others cost
// nothing. While there is no leader, and until a new one has read the records, more may be
// accepted: a pool goes on accepting jobs, whoever is away.
package quota

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/question"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

const (
	// asked and askedUsage are the kinds of the leader's questions.
	asked      = "quota"
	askedUsage = "quota-usage"
	// reservedFor is how long a job has a place whose record has not been seen.
	reservedFor = 30 * time.Second
)

// A Door admits the jobs of a pool. Its methods may be called from any goroutine.
type Door struct {
	quotas Quotas
	bus    question.Bus

	mu       sync.Mutex
	leading  bool
	open     map[string][]string  // the keys by which a job counts, by its id
	used     map[string]count     // by key
	reserved map[string]time.Time // since when, of those whose records have not been seen
}

// A count is how many jobs count for a key, and for which quota.
type count struct {
	jobs int
	of   string // the key as it was configured
}

// New returns the door of a queue. It does no I/O.
func New(q *queue.Queue, quotas Quotas) *Door {
	d := &Door{quotas: quotas, bus: q.Questions()}
	d.Lead(false)
	return d
}

// Lead says that this process begins to lead, and knows of no job yet; or that it leads no more.
func (d *Door) Lead(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leading = on
	d.open, d.used, d.reserved = map[string][]string{}, map[string]count{}, map[string]time.Time{}
}

// Note takes up a change of a record, where this process leads.
func (d *Door) Note(c record.Change) {
	if len(d.quotas) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reserved, c.ID)
	if c.Gone || c.Record.State == jobs.Finished {
		d.leave(c.ID)
	} else {
		d.enter(c.ID, d.quotas.Of(c.Record))
	}
}

func (d *Door) enter(id string, of []Bound) {
	if _, ok := d.open[id]; ok || len(of) == 0 {
		return
	}
	keys := make([]string, len(of))
	for i, q := range of {
		keys[i] = q.Key
		d.used[q.Key] = count{d.used[q.Key].jobs + 1, q.Of}
	}
	d.open[id] = keys
}

func (d *Door) leave(id string) {
	for _, key := range d.open[id] {
		c := d.used[key]
		if c.jobs--; c.jobs > 0 {
			d.used[key] = c
		} else {
			delete(d.used, key)
		}
	}
	delete(d.open, id)
}

// Admit returns a [*jobs.QuotaError] for a job that is one too many. One that was admitted counts
// from then on; the same id again is the same job.
func (d *Door) Admit(ctx context.Context, rec jobs.Record) error {
	of := d.quotas.Of(rec)
	if len(of) == 0 {
		return nil
	}
	if refused, decided := d.decide(rec.ID, of, time.Now()); decided {
		return refused.orNil()
	}
	var refused refusal
	what := jobs.Record{ID: rec.ID, Queue: rec.Queue, Batch: rec.Batch, Agent: rec.Agent, Repo: rec.Repo, Labels: rec.Labels}
	if err := d.bus.Ask(ctx, asked, what, &refused); err != nil {
		return ctx.Err() // no leader counts: see the package
	}
	return refused.orNil()
}

// A refusal says which quota is used up; the zero value is none.
type refusal struct {
	Key  string `json:"key,omitempty"`
	Most int    `json:"most,omitempty"`
	Used int    `json:"used,omitempty"`
}

func (r refusal) orNil() error {
	if r.Key == "" {
		return nil
	}
	return &jobs.QuotaError{Key: r.Key, Most: r.Most, Used: r.Used}
}

// decide reserves a place for a job, or says why there is none; where this process leads.
func (d *Door) decide(id string, of []Bound, now time.Time) (refused refusal, decided bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.leading {
		return refusal{}, false
	}
	if _, known := d.open[id]; known {
		return refusal{}, true
	}
	for other, since := range d.reserved {
		if now.Sub(since) > reservedFor {
			d.leave(other)
			delete(d.reserved, other)
		}
	}
	for _, q := range of {
		if used := d.used[q.Key].jobs; used >= q.Most {
			return refusal{q.Key, q.Most, used}, true
		}
	}
	d.enter(id, of)
	d.reserved[id] = now
	return refusal{}, true
}

// Run answers the doors of other processes until ctx ends. It is for the leader alone.
func (d *Door) Run(ctx context.Context) {
	if len(d.quotas) == 0 {
		return
	}
	_ = d.bus.Serve(ctx, map[string]question.Answer{asked: func(_ context.Context, data []byte) (any, error) { // fails only on a closed connection
		var rec jobs.Record
		if err := json.Unmarshal(data, &rec); err != nil {
			return nil, err
		}
		refused, decided := d.decide(rec.ID, d.quotas.Of(rec), time.Now())
		if !decided {
			return nil, question.ErrUnanswered
		}
		return refused, nil
	}, askedUsage: func(context.Context, []byte) (any, error) {
		all, leading := d.count()
		if !leading {
			return nil, question.ErrUnanswered
		}
		return all, nil
	}})
}

// Usage returns how much of each quota is used, in their order. While no leader counts, it
// returns nothing.
func (d *Door) Usage(ctx context.Context) ([]Usage, error) {
	if len(d.quotas) == 0 {
		return nil, nil
	}
	all, leading := d.count()
	if leading {
		return all, nil
	}
	if err := d.bus.Ask(ctx, askedUsage, nil, &all); err != nil {
		return nil, ctx.Err()
	}
	return all, nil
}

func (d *Door) count() (all []Usage, leading bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.leading {
		return nil, false
	}
	most := map[string]int{}
	for _, c := range d.used {
		most[c.of] = max(most[c.of], c.jobs)
	}
	for _, q := range d.quotas {
		all = append(all, Usage{q.Key, most[q.Key], q.Most})
	}
	return all, true
}
