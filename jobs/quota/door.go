// Package quota refuses jobs of those who have as many open as they may, or as much stored.
//
//	submit ─▶ Door.Admit ─▶ the leader: open jobs with reservations, and stored bytes, below each quota?
//	                          ├─ yes: a reservation, until the leader sees the record
//	                          └─ no:  [jobs.QuotaError], and nothing is kept
//
// Only the leader counts, so that no quota of jobs is exceeded by dispatchers that accept jobs at the
// same time. What the jobs will store that are open is not known: they may exceed a quota of bytes, and
// no further job is accepted then. The leader counts the jobs that quotas are about, as it sees their
// records change; others cost nothing. While there is no leader, and until a new one has read the
// records, more may be accepted: a pool goes on accepting jobs, whoever is away.
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
	counted  map[string][]share   // of the jobs that count, by id
	used     map[Quota]*count     // by key and unit
	reserved map[string]time.Time // since when, of those whose records have not been seen
}

// A count is how much is used of a quota, for one value of its key.
type count struct {
	of   Quota // the key as it was configured, and the unit
	at   Quota // its own key, and the unit
	jobs int   // that count
	used int64
}

// A share is how much a job uses of a count.
type share struct {
	of   *count
	used int64
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
	d.counted, d.used, d.reserved = map[string][]share{}, map[Quota]*count{}, map[string]time.Time{}
}

// Note takes up a change of a record, where this process leads.
func (d *Door) Note(c record.Change) {
	if len(d.quotas) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reserved, c.ID)
	d.leave(c.ID)
	if !c.Gone {
		d.enter(c.ID, d.quotas.Of(c.Record), c.Record)
	}
}

// enter counts a job that does not count yet.
func (d *Door) enter(id string, of []Bound, rec jobs.Record) {
	var shares []share
	for _, q := range of {
		used := int64(1)
		if q.Unit == StoredBytes {
			used = rec.Stored
		} else if rec.State == jobs.Finished {
			continue
		}
		c := d.used[q.which()]
		if c == nil {
			c = &count{of: Quota{Key: q.Of, Unit: q.Unit}, at: q.which()}
			d.used[c.at] = c
		}
		c.jobs++
		c.used += used
		shares = append(shares, share{c, used})
	}
	if shares != nil {
		d.counted[id] = shares
	}
}

func (d *Door) leave(id string) {
	for _, s := range d.counted[id] {
		s.of.used -= s.used
		if s.of.jobs--; s.of.jobs == 0 {
			delete(d.used, s.of.at)
		}
	}
	delete(d.counted, id)
}

// Admit returns a [*jobs.QuotaError] for a job that is one too many. One that was admitted counts
// from then on; the same id again is the same job.
func (d *Door) Admit(ctx context.Context, rec jobs.Record) error {
	of := d.quotas.Of(rec)
	if len(of) == 0 {
		return nil
	}
	if refused, decided := d.decide(rec, of, time.Now()); decided {
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
	Unit Unit   `json:"unit,omitempty"`
	Most int64  `json:"most,omitempty"`
	Used int64  `json:"used,omitempty"`
}

func (r refusal) orNil() error {
	if r.Key == "" {
		return nil
	}
	return &jobs.QuotaError{Key: r.Key, Bytes: r.Unit == StoredBytes, Most: r.Most, Used: r.Used}
}

// decide reserves a place for a job, or says why there is none; where this process leads.
func (d *Door) decide(rec jobs.Record, of []Bound, now time.Time) (refused refusal, decided bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.leading {
		return refusal{}, false
	}
	if _, known := d.counted[rec.ID]; known {
		return refusal{}, true
	}
	for other, since := range d.reserved {
		if now.Sub(since) > reservedFor {
			d.leave(other)
			delete(d.reserved, other)
		}
	}
	for _, q := range of {
		if c := d.used[q.which()]; c != nil && c.used >= q.Most {
			return refusal{q.Key, q.Unit, q.Most, c.used}, true
		}
	}
	d.enter(rec.ID, of, rec)
	d.reserved[rec.ID] = now
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
		refused, decided := d.decide(rec, d.quotas.Of(rec), time.Now())
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
	most := map[Quota]int64{}
	for _, c := range d.used {
		most[c.of] = max(most[c.of], c.used)
	}
	for _, q := range d.quotas {
		all = append(all, Usage{q.Key, q.Unit, most[q.which()], q.Most})
	}
	return all, true
}
