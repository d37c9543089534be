// Package api answers the requests of clients. Each operation of [operation.All] has a handler,
// over a dispatcher, which decides, and the records, sessions and artifacts.
//
//	request ─▶ decoded strictly ─▶ handler ─▶ answer, or a refusal with a code
//
// A [Server] holds nothing that another one would miss, so any number of them serve
// at the same time, in the dispatcher's process or in a command's own.
package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/amend"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/purge"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/quota"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/responder"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/token"
	"github.com/penstock-run/penstock/jobs/webhook"
	"github.com/penstock-run/penstock/jobs/why"
)

// Config is what a server works with.
type Config struct {
	Dispatcher *dispatcher.Dispatcher
	Queue      *queue.Queue
	Log        *session.Log
	Store      *artifact.Store
	Tokens     *token.Store
	Audit      *audit.Log
	Webhooks   *webhook.Store
	Deliverer  *deliver.Deliverer // makes the tests of webhooks
	// KeptUntil says when what the pool has of a finished job is removed; may be nil.
	KeptUntil func(jobs.Record) time.Time
	// Quotas are what queues are shown with.
	Quotas quota.Quotas
	// PullRequests reports why a job can have no pull request; nil: no job can have one.
	PullRequests func(jobs.Job) error
	// Unrecorded, if not nil, is told of entries that the audit log has not taken.
	Unrecorded func(operation.AuditEntry, error)
}

// A Server answers requests. Make one with New.
type Server struct {
	cfg     Config
	catalog *catalog.Catalog
	purger  *purge.Purger
	counts  counts
	reports chan struct{} // one for each report that is being made
}

// New returns a server. It does no I/O.
func New(cfg Config) *Server {
	all := catalog.New(cfg.Queue)
	return &Server{cfg: cfg, catalog: all, purger: purge.New(cfg.Queue, cfg.Store), counts: counts{cfg.Queue, all, cfg.Quotas}, reports: make(chan struct{}, reportsAtOnce)}
}

// Serve answers the requests of the bus until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	return s.cfg.Queue.Answer(ctx, s.recorded(s.handlers()))
}

// A caller is the sender of a request, and what an answer has room for.
type caller struct {
	by    string // in a word; empty: unsaid
	jobID string // that the new job is to have; empty: any
	trace jobs.Trace
	room  int // bytes
}

// name names the sender, for people who look at what the request has changed.
func (c caller) name() string { return cmp.Or(c.by, "api") }

// handle makes a handler of a function that has the types of an operation.
func handle[Q, A any](op operation.Operation[Q, A], do func(context.Context, caller, Q) (A, error)) responder.Handler {
	return responder.Handler{Row: op.Row, Do: func(ctx context.Context, call responder.Call) (any, error) {
		request, err := op.Decode(call.Request)
		if err != nil {
			return nil, err
		}
		return do(ctx, caller{by: call.By, jobID: call.JobID, trace: call.Trace, room: call.Room}, request)
	}}
}

// handlers answer the operations: each row of the table has one.
func (s *Server) handlers() []responder.Handler {
	return append(slices.Concat(s.scheduleHandlers(), s.tokenHandlers(), s.webhookHandlers()),
		s.submitHandler(),
		handle(operation.Get, aboutJob(s.cfg.Queue.Get)),
		handle(operation.Show, s.show),
		handle(operation.List, s.list),
		handle(operation.Wait, s.wait),
		handle(operation.Result, aboutJob(s.resultOf)),
		handle(operation.Why, aboutJob(s.catalog.Why)),
		handle(operation.Send, func(ctx context.Context, _ caller, r operation.SendRequest) (control.Receipt, error) {
			return s.cfg.Dispatcher.Send(ctx, r.ID, r.Control)
		}),
		handle(operation.Cancel, func(ctx context.Context, c caller, r operation.Ref) (jobs.Record, error) {
			return s.cfg.Queue.Cancel(ctx, r.ID, c.name())
		}),
		handle(operation.Retry, func(ctx context.Context, c caller, r operation.RetryRequest) (jobs.Record, error) {
			return s.cfg.Dispatcher.Retry(ctx, r.ID, c.name(), r.FromSalvage)
		}),
		handle(operation.Resume, func(ctx context.Context, _ caller, r operation.ResumeRequest) (jobs.Record, error) {
			return s.cfg.Dispatcher.Resume(ctx, r.ID, r.Prompt, r.Budget)
		}),
		handle(operation.Fork, s.fork),
		handle(operation.Review, func(ctx context.Context, c caller, r operation.ReviewRequest) (jobs.Record, error) {
			return amend.Review(ctx, s.cfg.Queue, r.ID, jobs.Review{State: r.State, By: c.name(), At: time.Now().UTC(), Comment: r.Comment, Epoch: r.Epoch})
		}),
		pullRequestHandler(s.cfg),
		purgeHandler(s.cfg.Queue, s.catalog, s.purger),
		handle(operation.Events, s.events),
		handle(operation.Artifacts, s.artifacts),
		handle(operation.Patch, s.patch),
		handle(operation.BatchList, s.batchList),
		handle(operation.BatchGet, s.batchGet),
		handle(operation.BatchReport, s.batchReport),
		handle(operation.BatchCancel, s.batchCancel),
		handle(operation.BatchPause, s.pause(jobs.HoldBatch)),
		handle(operation.BatchResume, s.unpause(jobs.HoldBatch)),
		handle(operation.QueueList, s.queueList),
		handle(operation.Stats, s.stats),
		handle(operation.QueuePause, s.pause(jobs.HoldQueue)),
		handle(operation.QueueResume, s.unpause(jobs.HoldQueue)),
		handle(operation.Holds, func(ctx context.Context, _ caller, _ operation.Nothing) (operation.HoldList, error) {
			return s.holds(ctx)
		}),
		handle(operation.Caps, s.caps),
		handle(operation.Budgets, s.counts.budgets),
		handle(operation.Workers, s.workers),
		handle(operation.WorkerGet, func(ctx context.Context, _ caller, r operation.Named) (why.Worker, error) {
			return s.cfg.Queue.Workers().Get(ctx, r.Name)
		}),
		handle(operation.WorkerDrain, s.drainWorker(true)),
		handle(operation.WorkerResume, s.drainWorker(false)),
		handle(operation.DeadList, s.deadList),
		handle(operation.DeadGet, s.deadGet),
		handle(operation.DeadRetry, s.deadRetry),
		handle(operation.DeadDrop, s.deadDrop),
		handle(operation.Audit, func(ctx context.Context, c caller, r operation.AuditRequest) (operation.AuditPage, error) {
			return s.cfg.Audit.Read(ctx, r, c.room)
		}),
	)
}

// aboutJob makes a handler's function of one of a job's id.
func aboutJob[A any](do func(context.Context, string) (A, error)) func(context.Context, caller, operation.Ref) (A, error) {
	return func(ctx context.Context, _ caller, r operation.Ref) (A, error) { return do(ctx, r.ID) }
}

// submitHandler leaves the decoding to the dispatcher, whose hooks hear of what is
// refused.
func (s *Server) submitHandler() responder.Handler {
	return responder.Handler{Row: operation.Submit.Row, Do: func(ctx context.Context, call responder.Call) (any, error) {
		return s.cfg.Dispatcher.SubmitJSON(ctx, call.JobID, call.Request, call.Trace, cmp.Or(call.By, "nats"))
	}}
}

func (s *Server) resultOf(ctx context.Context, id string) (jobs.Result, error) {
	rec, err := s.cfg.Queue.Get(ctx, id)
	if err != nil {
		return jobs.Result{}, err
	}
	return s.cfg.Dispatcher.Result(ctx, rec)
}

func (s *Server) scheduleHandlers() []responder.Handler {
	return []responder.Handler{
		handle(operation.ScheduleAdd, s.addSchedule(false)),
		handle(operation.ScheduleReplace, s.addSchedule(true)),
		handle(operation.ScheduleList, s.scheduleList),
		handle(operation.ScheduleGet, aboutSchedule(s.cfg.Queue.Timetable().Get)),
		handle(operation.SchedulePause, func(ctx context.Context, c caller, r operation.Named) (calendar.Record, error) {
			return s.cfg.Dispatcher.Schedules().Pause(ctx, r.Name, c.name())
		}),
		handle(operation.ScheduleResume, aboutSchedule(s.cfg.Dispatcher.Schedules().Resume)),
		handle(operation.ScheduleRun, func(ctx context.Context, c caller, r operation.Named) (calendar.Record, error) {
			return s.cfg.Dispatcher.Schedules().Run(ctx, r.Name, c.jobID, c.trace)
		}),
		handle(operation.ScheduleRemove, func(ctx context.Context, _ caller, r operation.Named) (operation.Named, error) {
			return r, s.cfg.Queue.Timetable().Remove(ctx, r.Name)
		}),
	}
}

func aboutSchedule(do func(context.Context, string) (calendar.Record, error)) func(context.Context, caller, operation.Named) (calendar.Record, error) {
	return func(ctx context.Context, _ caller, r operation.Named) (calendar.Record, error) {
		return do(ctx, r.Name)
	}
}

func (s *Server) addSchedule(replace bool) func(context.Context, caller, calendar.Schedule) (calendar.Record, error) {
	return func(ctx context.Context, _ caller, wanted calendar.Schedule) (calendar.Record, error) {
		return s.cfg.Dispatcher.Schedules().Add(ctx, wanted, replace)
	}
}

func (s *Server) scheduleList(ctx context.Context, c caller, r operation.PageRequest) (operation.SchedulePage, error) {
	list, err := s.cfg.Queue.Timetable().List(ctx)
	if err != nil {
		return operation.SchedulePage{}, err
	}
	part, more, err := page(after(list, r.After, func(rec calendar.Record) string { return rec.Name }), r.Limit, c.room)
	answer := operation.SchedulePage{Schedules: part}
	if more {
		answer.Next = part[len(part)-1].Name
	}
	return answer, err
}

func (s *Server) caps(ctx context.Context, _ caller, _ operation.Nothing) (operation.CapList, error) {
	caps, err := s.cfg.Queue.Permits().Caps(ctx)
	if err != nil {
		return operation.CapList{}, err
	}
	running, err := s.catalog.All(ctx, record.Filter{State: jobs.Executing})
	return operation.CapList{Caps: caps.Used(running)}, err
}

func (s *Server) workers(ctx context.Context, _ caller, _ operation.Nothing) (operation.WorkerList, error) {
	list, err := s.cfg.Queue.Workers().List(ctx)
	if list == nil {
		list = []why.Worker{}
	}
	return operation.WorkerList{Workers: list}, err
}

// drainWorker has a worker claim nothing more, or claim again.
func (s *Server) drainWorker(drain bool) func(context.Context, caller, operation.Named) (why.Worker, error) {
	return func(ctx context.Context, c caller, r operation.Named) (why.Worker, error) {
		return s.cfg.Queue.Workers().Drain(ctx, r.Name, c.name(), drain)
	}
}

// fork submits jobs that begin with a copy of a job's conversation.
func (s *Server) fork(ctx context.Context, c caller, r operation.ForkRequest) (operation.Forked, error) {
	var made operation.Forked
	if c.jobID != "" && r.Count > 1 {
		return made, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "count", Reason: "is more than 1, and header " + operation.JobIDHeader + " is the id of one job"}}}
	}
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	if err != nil {
		return made, err
	}
	job, err := s.cfg.Queue.Job(ctx, rec.ID)
	if err != nil {
		return made, err
	}
	job = job.Forked(rec.ID, r.Prompt).In(c.trace)
	for range max(1, r.Count) {
		answer, err := s.cfg.Dispatcher.SubmitAs(ctx, c.jobID, job, c.name())
		if err != nil {
			return made, fmt.Errorf("fork %d of %d: %w", len(made.Jobs)+1, max(1, r.Count), err)
		}
		made.Jobs = append(made.Jobs, answer)
	}
	return made, nil
}
