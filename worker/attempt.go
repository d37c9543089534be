package worker

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/workspace"
)

// How long the steps may take that must still happen when an attempt is over.
const (
	collectLimit = 5 * time.Minute
	settleLimit  = 2 * time.Minute
)

// An attempt is one try of a job, from the claim to the verdict.
type attempt struct {
	*Worker
	claim  *queue.Claim
	rec    jobs.Record
	job    jobs.Job
	log    *slog.Logger
	writer *session.Writer
	events *recorder
	result jobs.Result
	// secrets removes what must not leave the worker; nil before begin.
	secrets *redact.Redactor
}

// handle carries one claim to its end: settled, handed back, or lost.
func (w *Worker) handle(ctx context.Context, claim *queue.Claim) {
	rec := claim.Record()
	a := &attempt{
		Worker: w, claim: claim, rec: rec, job: claim.Job(), result: rec.Result(),
		log: w.log.With("job", rec.ID, "attempt", rec.Attempt),
	}
	if rec.Started != nil {
		a.result.Durations.Queue = rec.Started.Sub(rec.Submitted).Seconds()
	}
	a.log.Info("claimed", "queue", rec.Queue, "agent", rec.Agent)
	if w.cfg.Hooks.Claimed != nil {
		w.cfg.Hooks.Claimed(rec)
	}
	if w.cfg.Hooks.Released != nil {
		defer func() { w.cfg.Hooks.Released(a.rec) }()
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	released := a.keep(ctx, end)
	defer released()

	err := a.begin(ctx, end)
	if err == nil {
		err = a.run(ctx)
	}
	a.settle(ctx, verdict(ctx, err))
}

// keep renews the lease until the function it returns is called. When the
// lease is lost, or the job cancelled, it ends the attempt with that cause.
func (a *attempt) keep(ctx context.Context, end context.CancelCauseFunc) (release func()) {
	// The lease is needed beyond the attempt's own end: until it is settled.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			err := a.claim.Keep(ctx)
			if err == nil {
				return
			}
			end(err)
			if !errors.Is(err, jobs.ErrCancelled) {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// begin opens the attempt's part of the session's log.
func (a *attempt) begin(ctx context.Context, end context.CancelCauseFunc) error {
	var missing error
	a.secrets, missing = a.redactor()
	src := session.Source{
		Job: a.rec.ID, Session: a.rec.Session, Agent: a.rec.Agent, Attempt: a.rec.Attempt, Epoch: a.claim.Epoch(),
	}
	first := jobs.NewEvent(jobs.JobClaimed, claimed{Worker: a.cfg.Name, Epoch: src.Epoch, Lost: a.claim.Previous()})
	writer, err := a.cfg.Log.Writer(ctx, src, first)
	if err != nil {
		return failed(jobs.StoreFailed, "open the session's log", err)
	}
	a.writer = writer
	a.events = newRecorder(writer, a.secrets.Event, a.cfg.Hooks, func(err error) {
		end(failed(jobs.StoreFailed, "append to the session's log", err))
	})
	a.events.start(ctx)
	return missing
}

type claimed struct {
	Worker string      `json:"worker"`
	Epoch  uint64      `json:"epoch"`
	Lost   *jobs.Ended `json:"previous,omitempty"` // how the attempt before was lost
}

// run is the way of a job through a worker. A nil error is a success.
func (a *attempt) run(ctx context.Context) error {
	adapter, err := a.cfg.Agents.Get(a.job.Agent.Name)
	if err != nil {
		return err
	}
	backend, err := a.backend()
	if err != nil {
		return err
	}
	space, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	defer a.release("workspace", "cleanup", space.Close)
	in, err := a.enter(backend, space)
	if err != nil {
		return err
	}

	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(a.job.Timeout), errTimeLimit)
	defer cancel()
	err = a.work(limited, in, adapter)
	if err == nil {
		err = context.Cause(limited)
	}
	if over := context.Cause(ctx); errors.Is(over, jobs.ErrFenced) || errors.Is(over, jobs.ErrDraining) {
		return over // somebody else will do it again: nothing of this counts
	}
	if collected := a.collect(ctx, space); err == nil {
		err = collected
	}
	return err
}

// work runs the job's setup, its agent and its checks, all in the same jail's
// view of the same workspace.
func (a *attempt) work(ctx context.Context, in jail, adapter agent.Adapter) error {
	if err := a.commands(ctx, in, jobs.SetupFailed, a.job.Setup); err != nil {
		return err
	}
	if err := a.agent(ctx, in, adapter); err != nil {
		return err
	}
	return a.commands(ctx, in, jobs.CheckFailed, a.job.Check)
}

// name tells the attempt from all others of all jobs: its workspace and its
// jails are called so, and what a kill leaves of them is found by it.
func (a *attempt) name() string {
	return a.rec.ID + "." + strconv.FormatUint(a.claim.Epoch(), 10)
}

// prepare makes the workspace.
func (a *attempt) prepare(ctx context.Context) (*workspace.Workspace, error) {
	began := time.Now()
	space, err := a.cfg.Spaces.Prepare(ctx, workspace.Request{
		ID: a.name(), Repo: a.job.Repo, Isolation: a.job.Isolation,
	})
	a.result.Durations.Provision = a.stage("provision", began)
	if err != nil {
		return nil, failed(jobs.WorkspaceFailed, "prepare workspace", err)
	}
	a.result.BaseCommit = space.Base()
	a.events.put(jobs.NewEvent(jobs.WorkspaceDone, workspaceReady{
		Base: space.Base(), Isolation: a.job.Isolation, Seconds: a.result.Durations.Provision,
	}))
	return space, nil
}

type workspaceReady struct {
	Base      string         `json:"base_commit,omitempty"`
	Isolation jobs.Isolation `json:"isolation"`
	Seconds   float64        `json:"seconds"`
}

// release closes what a step opened. A failure is reported; it does not undo
// a result that is already there.
func (a *attempt) release(what, stage string, closing func() error) {
	defer a.stage(stage, time.Now())
	if err := closing(); err != nil {
		a.log.Error("could not be cleaned up", "what", what, "err", err)
		a.leftover(what)
	}
}

// stage reports a step's time and returns it in seconds.
func (a *attempt) stage(name string, began time.Time) float64 {
	took := time.Since(began)
	if a.cfg.Hooks.Stage != nil {
		a.cfg.Hooks.Stage(name, took)
	}
	return took.Seconds()
}
