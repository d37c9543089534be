// Package dispatcher accepts jobs, publishes them, and completes steps that a
// crash left undone.
//
//	submit ─▶ validate ─▶ job.submitted ─▶ record ─▶ (whose turn is it?) ─▶ queue
//	                                          ▲                              ▲
//	                                          └── repair: what a crash left between two steps
//
// A [Dispatcher] holds no state of its own: everything it knows is in the
// records, so any number of them may run at the same time, and a client may
// use one in its own process. It promises that a job is stored before its
// submitter hears so, and that any process may repeat each step. One of those
// that run leads: it admits jobs to the queue in their order, and repairs.
package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/session"
)

// Config is what a dispatcher works with.
type Config struct {
	Queue *queue.Queue
	Log   *session.Log
	Store *artifact.Store
	// Able reports what a job asks for and its agent cannot do, as far as this
	// process knows the agent; may be nil. The workers have the last word.
	Able func(jobs.Job) error
	// PullRequests reports why a job that asks for a pull request cannot have one; nil: no job can.
	PullRequests func(jobs.Job) error
	// Caps bound what runs at once; Run sets them. Nil leaves those that are set.
	Caps schedule.Caps
	// Budgets bound what jobs spend together; Run sets them. Nil leaves those that are set.
	Budgets ledger.Budgets
	// Admit refuses jobs of those who have as many as they may; may be nil. It is not asked about
	// a job whose key belongs to one.
	Admit func(context.Context, jobs.Record) error
	// MaxDepth is how many generations of children a job may have: 0 is none, 1 is
	// children without children of their own.
	MaxDepth int
	// Duties are what else the dispatcher does while it leads, each until its context
	// ends.
	Duties []func(context.Context)
	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks let a program watch a [Dispatcher]. Every field may be nil.
type Hooks struct {
	// Submitted: a job was accepted, by this process or by any other. It is
	// called where this dispatcher leads, for a job whose record is new to it.
	Submitted func(rec jobs.Record)
	// Accepted: this process has accepted a new job, which took so long.
	Accepted     func(rec jobs.Record, took time.Duration)
	Deduplicated func(rec jobs.Record, source string)
	Rejected     func(source string, err error)
	Repaired     func(rec jobs.Record)
	// Changed: where this dispatcher leads, it has read what a record says now; of each job that is
	// kept when it begins to lead, and then at each change.
	Changed func(record.Change)
	// Leading: this dispatcher has begun, or ceased, to admit and repair jobs.
	Leading func(on bool)
}

// A Dispatcher accepts, cancels and repairs jobs. Make one with New.
type Dispatcher struct {
	cfg        Config
	log        *slog.Logger
	references references
}

// New returns a dispatcher. It does no I/O.
func New(cfg Config) *Dispatcher {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Queue.EndWith(cfg.Log.Finisher(cfg.Store.Result))
	return &Dispatcher{cfg: cfg, log: cfg.Logger, references: references{cfg.Queue, cfg.Store, cfg.MaxDepth}}
}

// Submit validates a job and stores it. When it returns without an error the
// job will be run; submitting again with the same key returns the same job.
// Source says which door the job came through, for followers.
func (d *Dispatcher) Submit(ctx context.Context, job jobs.Job, source string) (operation.Submitted, error) {
	made, err := d.submit(ctx, jobs.NewID(), job, source)
	return made.Submitted, err
}

// SubmitJSON is Submit for a job as it was sent, with the id that the submitter has
// chosen, unless that is empty. The same job with the same id again is one job; an id
// that another job has is refused. The job is part of the trace of the request that
// brought it, unless it names another one.
func (d *Dispatcher) SubmitJSON(ctx context.Context, chosen string, data []byte, in jobs.Trace, source string) (operation.Submitted, error) {
	job, err := jobs.Decode(data)
	if err != nil {
		d.rejected(source, err)
		return operation.Submitted{}, err
	}
	return d.SubmitAs(ctx, chosen, job.In(in), source)
}

// SubmitAs is Submit with the id that the submitter has chosen, as SubmitJSON.
func (d *Dispatcher) SubmitAs(ctx context.Context, chosen string, job jobs.Job, source string) (operation.Submitted, error) {
	if err := checkChosen(chosen, job); err != nil {
		d.rejected(source, err)
		return operation.Submitted{}, err
	}
	made, err := d.submit(ctx, cmp.Or(chosen, jobs.NewID()), job, source)
	return made.Submitted, err
}

// checkChosen refuses an id that its submitter cannot choose for a job; empty is none.
func checkChosen(id string, job jobs.Job) error {
	reason := ""
	switch {
	case id == "":
	case !jobs.IsID(id):
		reason = fmt.Sprintf("%q is not a UUIDv7 in lower case, which a job's id is", id)
	case job.Signature != nil && job.Signature.ID != id:
		reason = "is not the id that the job was signed for, " + job.Signature.ID
	}
	if reason == "" {
		return nil
	}
	return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: operation.JobIDHeader, Reason: reason}}}
}

// A submitted job is what its submitter is told, and the job's record.
type submitted struct {
	operation.Submitted
	rec jobs.Record
}

// submit is Submit for a job whose id is decided already.
func (d *Dispatcher) submit(ctx context.Context, id string, job jobs.Job, source string) (submitted, error) {
	began := time.Now()
	job = job.WithDefaults()
	if job.Signature != nil {
		id = job.Signature.ID // which the signature covers
	}
	var origin *jobs.Capsule
	err := d.check(job)
	if err == nil {
		origin, job, err = d.references.check(ctx, id, job)
	}
	if err == nil {
		err = d.cfg.admit(ctx, id, job)
	}
	if err != nil {
		d.rejected(source, err)
		return submitted{}, err
	}
	rec, duplicate, err := d.cfg.Queue.AcceptAs(ctx, id, job, source, func(ctx context.Context, rec jobs.Record) error {
		if origin != nil { // before it may be claimed
			if err := d.cfg.Store.CopyCapsule(ctx, *origin, rec.ID); err != nil {
				return err
			}
		}
		return d.announce(ctx, rec)
	})
	if taken, ok := errors.AsType[*jobs.InvalidError](err); ok { // the id, by another job
		d.rejected(source, taken)
		return submitted{}, taken
	}
	if err != nil {
		return submitted{}, fmt.Errorf("accept job: %w", err)
	}
	var differs []string
	if duplicate {
		if differs, err = d.differs(ctx, rec, job); err != nil {
			return submitted{}, err
		}
	}
	// A duplicate may be one whose first submitter died half way.
	if !duplicate || rec.Attempt == 0 {
		if err := d.cfg.Queue.Enqueue(ctx, rec); err != nil {
			return submitted{}, err
		}
	}
	if hook := d.cfg.Hooks.Deduplicated; duplicate && hook != nil {
		hook(rec, source)
	}
	if hook := d.cfg.Hooks.Accepted; !duplicate && hook != nil {
		hook(rec, time.Since(began))
	}
	return submitted{operation.Submitted{ID: rec.ID, Session: rec.Session, Duplicate: duplicate, Differs: differs}, rec}, nil
}

// admit asks whether a new job may be accepted.
func (cfg Config) admit(ctx context.Context, id string, job jobs.Job) error {
	if cfg.Admit == nil {
		return nil
	}
	if job.Key != "" {
		if taken, err := cfg.Queue.HasKey(ctx, job.Key); err != nil || taken {
			return err
		}
	}
	return cfg.Admit(ctx, jobs.NewRecord(id, "", job, time.Now()))
}

// differs compares a submission with the job that its key belongs to, which stands.
func (d *Dispatcher) differs(ctx context.Context, kept jobs.Record, job jobs.Job) ([]string, error) {
	first, err := d.cfg.Queue.Job(ctx, kept.ID)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, nil // a specification may be kept for a shorter time than its record
	}
	if err != nil {
		return nil, err
	}
	return jobs.Differences(first, job)
}

// announce appends job.submitted to the job's session, once.
func (d *Dispatcher) announce(ctx context.Context, rec jobs.Record) error {
	src := session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Trace: rec.Span(0)}
	submitted := event.New(event.JobSubmitted{
		Key: rec.Key, Batch: rec.Batch, Item: rec.Item, Queue: rec.Queue, Priority: rec.Priority, Title: rec.Title, NotBefore: rec.NotBefore,
	})
	// As a rule the session is new.
	if begun, err := d.cfg.Log.Begin(ctx, src, submitted); begun || err != nil {
		return err
	}
	for event, err := range d.cfg.Log.Read(ctx, rec.Session, 1) {
		if err != nil {
			return err
		}
		if event.Job == rec.ID {
			return nil // submitted, and perhaps more
		}
	}
	_, err := d.cfg.Log.Append(ctx, src, submitted)
	return err
}

// Result returns the result of a finished job.
func (d *Dispatcher) Result(ctx context.Context, rec jobs.Record) (jobs.Result, error) {
	if rec.State != jobs.Finished {
		return jobs.Result{}, fmt.Errorf("%w: job %s is %s", jobs.ErrNotFinished, rec.ID, rec.State)
	}
	return d.cfg.Store.Result(ctx, rec)
}

// Run takes what was published without a request, moves due jobs to
// their queues, fires schedules, admits jobs in their order and repairs what a
// crash left, until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	changed, err := setBudgets(ctx, d.cfg.Queue, d.cfg.Budgets)
	if err != nil {
		return err
	}
	if d.cfg.Caps != nil {
		if err := d.cfg.Queue.Permits().SetCaps(ctx, d.cfg.Caps); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	if changed {
		g.Go(func() error {
			if err := tryBudgets(ctx, d.cfg.Queue); err != nil && ctx.Err() == nil {
				d.log.Warn("jobs that are parked until the next period of a budget did not go on with those that are set now", "err", err)
			}
			return nil
		})
	}
	g.Go(func() error { return d.cfg.Queue.RunDue(ctx, d.Schedules().fire) })
	g.Go(func() error { return d.cfg.Queue.RunAdvisories(ctx) })
	g.Go(func() error { return d.cfg.Queue.Submissions(ctx, d.plain) })
	g.Go(func() error { return d.cfg.Queue.Lead(ctx, leader{d}.run) })
	return g.Wait()
}
