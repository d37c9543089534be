// Package recovery finds out what a broker has lost that was written last: it compares the
// records of jobs with what their sessions and their stored results know.
package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
)

// A Config says which records are compared, and who may write them.
type Config struct {
	Conn      *wire.Conn
	Records   record.Store
	Tenant    string
	Retention time.Duration // how long finished jobs are kept
	// Learn writes a record that has what was lost, does what follows from that, and reports
	// whether it did: it does not where another process has written the record since.
	Learn func(context.Context, record.Entry) (bool, error)
}

// A Recovery compares the records of a pool. Its methods may be called from any goroutine.
type Recovery struct{ cfg Config }

// New returns what compares records.
func New(cfg Config) Recovery { return Recovery{cfg} }

// A Loss is a record that knows less of its job than others do: the broker's
// store has lost what was written last.
type Loss struct {
	Job    string       `json:"job"`
	Was    jobs.State   `json:"was"` // what the record says; empty: there is none
	Is     jobs.State   `json:"is"`  // what the job is
	From   string       `json:"from"`
	Result jobs.Outcome `json:"outcome,omitempty"`
	Fixed  bool         `json:"fixed"`
	// Record is the job's as it is now, for logs.
	Record jobs.Record `json:"-"`
}

func (l Loss) String() string {
	was := "its record is gone"
	if l.Was != "" {
		was = "its record says " + string(l.Was)
	}
	is := string(l.Is)
	if l.Result != "" {
		is += " (" + string(l.Result) + ")"
	}
	return fmt.Sprintf("job %s: %s, but %s says %s", l.Job, was, l.From, is)
}

// known is what sources other than the record know of a job; see [Recovery.Audit].
type known struct {
	last   func(ctx context.Context, records []jobs.Record) (map[string]jobs.Event, error)
	result func(ctx context.Context, id string) (jobs.Result, uint64, error)
}

const (
	auditAtOnce = 16
	// auditBatch is how many jobs are compared together: so few are in memory.
	auditBatch = 256
	// submitWithin is how long a submission may be under way. One that takes longer
	// finds its record made.
	submitWithin = 2 * time.Second
)

// Audit compares the records with what else is known of their jobs, and returns
// what they do not know. With fix they are made to know it: a job that has
// finished is finished again, with the result that it had, and does not run once
// more; one whose record is gone goes on. What is written meanwhile stays.
//
// Last returns, by job, the last events of jobs in their sessions, but for those that may
// come behind their end; an error is about those that are left out. Result returns the last
// result that an attempt of a job has stored, and that attempt's epoch, or
// [jobs.ErrNotFound].
func (r Recovery) Audit(
	ctx context.Context, fix bool, last func(context.Context, []jobs.Record) (map[string]jobs.Event, error),
	result func(ctx context.Context, id string) (jobs.Result, uint64, error),
) ([]Loss, error) {
	others := known{last, result}
	found := map[string]Loss{} // a record that changes meanwhile may be met again
	var wrong []error          // one that cannot be compared does not keep the others
	err := r.suspects(ctx, func(batch []record.Entry) error {
		losses, err := r.auditBatch(ctx, others, batch, fix)
		for _, loss := range losses {
			found[loss.Job] = loss
		}
		if err != nil {
			wrong = append(wrong, err)
		}
		return ctx.Err()
	})
	if err != nil {
		err = fmt.Errorf("compare the records: %w", err)
	}
	list := slices.SortedFunc(maps.Values(found), func(a, b Loss) int { return cmp.Compare(a.Job, b.Job) })
	return list, errors.Join(append(wrong, err)...)
}

// auditBatch compares a few jobs.
func (r Recovery) auditBatch(ctx context.Context, others known, batch []record.Entry, fix bool) ([]Loss, error) {
	records := make([]jobs.Record, len(batch))
	for i, e := range batch {
		records[i] = e.Record
	}
	lasts, unread := others.last(ctx, records)
	now, err := r.cfg.Records.Now(ctx)
	if err != nil {
		return nil, errors.Join(unread, err)
	}
	var mu sync.Mutex
	var found []Loss
	wrong := []error{unread}
	var g errgroup.Group
	g.SetLimit(auditAtOnce)
	for _, e := range batch {
		last, ok := lasts[e.ID]
		if !ok || !r.lost(e, last, now) {
			continue
		}
		g.Go(func() error {
			loss, err := r.audit(ctx, others, e, last, fix)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				wrong = append(wrong, fmt.Errorf("compare job %s: %w", e.ID, err))
			}
			if loss != nil {
				found = append(found, *loss)
			}
			return nil
		})
	}
	err = g.Wait()
	return found, errors.Join(append(wrong, err)...)
}

// suspects calls look with the jobs that have not finished as far as the records know, and
// then with those that have a specification and no record: with a few at a time.
func (r Recovery) suspects(ctx context.Context, look func([]record.Entry) error) error {
	// The order matters: a record is made after its specification.
	specs, err := wire.Range{Stream: subject.KVStream(subject.Specs), Subject: subject.Key(subject.Specs, "*")}.IDs(ctx, r.cfg.Conn)
	if err != nil {
		return err
	}
	var batch []record.Entry
	add := func(e record.Entry) (err error) {
		if batch = append(batch, e); len(batch) == auditBatch {
			err, batch = look(batch), nil
		}
		return err
	}
	for c, err := range r.cfg.Records.Changed(ctx, 0) {
		if err != nil {
			return err
		}
		if specs.Remove(c.ID); c.Gone || c.State == jobs.Finished {
			continue
		}
		if err := add(c.Entry); err != nil {
			return err
		}
	}
	for id := range specs.All() {
		m, err := r.cfg.Conn.Last(ctx, subject.KVStream(subject.Specs), subject.Key(subject.Specs, id))
		if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
			continue
		}
		if err != nil {
			return err
		}
		if e, ok := r.reborn(m); ok {
			if err := add(e); err != nil {
				return err
			}
		}
	}
	return look(batch)
}

// reborn is the entry of a job that has only its specification left.
func (r Recovery) reborn(spec wire.Message) (record.Entry, bool) {
	id := spec.Subject[strings.LastIndexByte(spec.Subject, '.')+1:]
	var job jobs.Job
	if json.Unmarshal(spec.Data, &job) != nil {
		return record.Entry{}, false // of a release that this one does not know
	}
	return record.Entry{Record: jobs.NewRecord(id, r.cfg.Tenant, job, spec.Time), At: spec.Time}, true
}

func (r Recovery) audit(ctx context.Context, others known, e record.Entry, last jobs.Event, fix bool) (*Loss, error) {
	now, err := r.cfg.Records.Now(ctx)
	if err != nil {
		return nil, err
	}
	// It may have moved on since it was listed. A record is written before its
	// events, so that what is read now knows of this one.
	fresh, err := r.cfg.Records.Read(ctx, e.ID)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
	case err != nil:
		return nil, err
	case fresh.Rev != e.Rev && (fresh.State == jobs.Finished || !r.lost(fresh, last, now)):
		return nil, nil
	default:
		e = fresh
	}
	loss := &Loss{Job: e.ID}
	if e.Rev > 0 {
		loss.Was = e.State
	}
	if e.Record, loss.From, err = r.recall(ctx, others, e.Record, last); err != nil {
		return nil, err
	}
	if e.State == jobs.Executing { // an attempt that its worker cannot go on with
		e.State, e.Worker, e.Beat, e.Lease = jobs.Pending, "", 0, 0
	}
	loss.Is, loss.Result, loss.Record = e.State, e.Outcome, e.Record
	if fix {
		loss.Fixed, err = r.cfg.Learn(ctx, e)
	}
	return loss, err
}

// recall returns the record of a job with what its session and its stored result
// know, and which of the two knew it.
func (r Recovery) recall(ctx context.Context, others known, rec jobs.Record, last jobs.Event) (jobs.Record, string, error) {
	const session, result = "its session", "its stored result"
	rec.Attempt = max(rec.Attempt, last.Attempt)
	stored, epoch, err := others.result(ctx, rec.ID)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return rec, "", err
	}
	if err == nil && stored.Attempts == rec.Attempt { // where what was stored of the last attempt lies
		rec.Epoch = max(rec.Epoch, epoch)
	}
	if last.Kind == jobs.JobFinished {
		var reported jobs.Result
		if err := json.Unmarshal(last.Data, &reported); err != nil || reported.Outcome == "" {
			return rec, "", fmt.Errorf("the event job.finished has no result: %w", err)
		}
		return rec.Again(reported, last.Time), session, nil
	}
	final := stored.Outcome == jobs.Success || stored.Outcome != "" && jobs.Reasons[stored.Reason].Retry == jobs.Never
	if err == nil && final && stored.Attempts == rec.Attempt {
		return rec.Again(stored, last.Time), result, nil
	}
	return rec, session, nil
}

// lost reports whether a job's last event knows more than its record.
func (r Recovery) lost(e record.Entry, last jobs.Event, now time.Time) bool {
	over := last.Kind == jobs.JobFinished
	switch {
	case e.Rev == 0 && over:
		return now.Sub(last.Time) < r.cfg.Retention // else it was kept long enough
	case e.Rev == 0:
		return last.Kind != jobs.JobSubmitted || now.Sub(e.At) > submitWithin
	case last.Attempt > e.Attempt:
		return true // the record of an attempt comes before its events
	}
	// So does that of an end. One that was written later belongs to a job that was
	// brought back and whose session is just about to say so.
	return over && (e.State == jobs.Executing && last.Attempt == e.Attempt || e.At.Before(last.Time))
}
