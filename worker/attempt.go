package worker

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/diskspace"
	"github.com/penstock-run/penstock/worker/internal/jails"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/internal/preparation"
	"github.com/penstock-run/penstock/worker/internal/recorder"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// How long the steps may take that must still happen when an attempt is over.
const (
	settleLimit    = 2 * time.Minute
	surrenderLimit = 30 * time.Second
)

// An attempt is one try of a job, from the claim to the verdict.
type attempt struct {
	cfg    *Config
	tally  *diskspace.Tally
	claim  *queue.Claim
	rec    jobs.Record
	job    jobs.Job
	log    *slog.Logger
	writer *session.Writer
	events *recorder.Recorder
	// out is what the attempt leaves.
	out     *outcome.Outcome
	times   stopwatch
	cleanup cleanup
	// refused notes what the attempt's jails wanted and did not get.
	refused     *jails.Refusals
	jails       *jails.Set
	preparation preparation.Preparation
	// salvages are those of earlier attempts.
	salvages outcome.Salvages
	space    *workspace.Workspace
	// secrets removes what must not leave the worker.
	secrets *redact.Redactor
	// notice is what the agent must know of its workspace; "" if that is new.
	notice string
	// depends are the jobs that this one depends on.
	depends []agent.Dependency
	// talk is what the agent's runs within the attempt share.
	talk agentRuns
	// current takes the control messages of the session.
	current currentRun
	// tokens let the attempt's programs in to the model API and to the network.
	tokens tokens
	// inside is the way from the agent's jail to its worker.
	inside *inside.Server
	// terminals is how many the runs of the agent have had that are over.
	terminals int
	// conversation is what outlives the agent's processes.
	conversation *conversation.Conversation
	// parked is how the attempt ends with its questions open; nil: it does not.
	parked *agentrun.Parking
	// again is when the model API said to come again, if that is what the attempt
	// ended for; zero: it did not say.
	again time.Time
}

// handle carries one claim to its end: settled, handed back, or lost.
func (w *Worker) handle(ctx context.Context, claim *queue.Claim) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a, missing := w.newAttempt(claim, end)
	a.log.Info("claimed", "queue", a.rec.Queue, "agent", a.rec.Agent)
	if w.cfg.Hooks.Claimed != nil {
		w.cfg.Hooks.Claimed(a.rec)
	}
	if w.cfg.Hooks.Released != nil {
		defer func() { w.cfg.Hooks.Released(a.rec) }()
	}
	released := a.keep(ctx, end)
	defer released()

	err := a.begin(ctx)
	if err == nil {
		err = missing
	}
	if err == nil {
		err = a.attend(ctx)
	}
	a.settle(ctx, verdict.Of(ctx, err))
}

// newAttempt returns the attempt of a claim, which ends by end. The error says which of the job's
// secrets the worker does not have; the attempt can tell so.
func (w *Worker) newAttempt(claim *queue.Claim, end context.CancelCauseFunc) (a *attempt, missing error) {
	rec := claim.Record()
	a = &attempt{
		cfg: &w.cfg, tally: w.tally, claim: claim, rec: rec, job: claim.Job(),
		log: w.log.With("job", rec.ID, "attempt", rec.Attempt), inside: inside.NewServer(), tokens: newTokens(),
	}
	a.secrets, missing = a.redactor()
	a.events = recorder.New(a.secrets.Event, recorder.Hooks{Stored: w.cfg.Hooks.Events, Dropped: w.cfg.Hooks.Dropped}, func(err error) {
		end(verdict.Failed(jobs.StoreFailed, "append to the session's log", err))
	})
	a.out = outcome.New(outcome.Config{
		Store: w.cfg.Store, Log: a.log, Job: a.job, Record: rec, Epoch: claim.Epoch(), Worker: w.cfg.Name,
		Secrets: a.secrets, Tell: a.events.Put, Assert: claim.Assert,
		CommitAuthor: w.cfg.CommitAuthor, CommitPlain: w.cfg.CommitPlain,
	})
	a.conversation = conversation.New(conversation.Config{
		Store: w.cfg.Store, Log: a.log, Job: a.job, Record: rec, Epoch: claim.Epoch(), Worker: w.cfg.Name, Lost: claim.Previous() != nil,
		Secrets: a.secrets, Tell: a.events.Put, Assert: claim.Assert,
	})
	a.times = stopwatch{w.cfg.Hooks.Stage, a.out.Result}
	a.cleanup = cleanup{a.times, a.log, w.leftover}
	a.refused, a.jails = a.newJails()
	a.salvages = outcome.Salvages{Store: w.cfg.Store, Record: w.cfg.Queue.Get}
	a.preparation = a.newPreparation()
	return a, missing
}

// attend runs the attempt, and listens to the session meanwhile.
func (a *attempt) attend(ctx context.Context) error {
	stop, err := a.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	stopTerminals, err := a.cfg.Log.ServeTerminals(a.rec.Session, a.terminal)
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "listen to the session", err)
	}
	defer stopTerminals()
	return a.run(ctx)
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
func (a *attempt) begin(ctx context.Context) error {
	src := session.Source{
		Job: a.rec.ID, Session: a.rec.Session, Agent: a.rec.Agent, Attempt: a.rec.Attempt, Epoch: a.claim.Epoch(),
	}
	first := event.New(event.JobClaimed{Worker: a.cfg.Name, Epoch: src.Epoch, Lost: a.claim.Previous()})
	writer, err := a.cfg.Log.Writer(ctx, src, first)
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "open the session's log", err)
	}
	a.writer = writer
	a.events.Start(ctx, writer)
	return nil
}

// run is the way of a job through a worker. A nil error is a success.
func (a *attempt) run(ctx context.Context) (err error) {
	plan, err := a.preparation.Plan(ctx)
	if err != nil {
		return err
	}
	a.job = plan.Job
	space, err := a.preparation.Workspace(ctx, plan)
	if err != nil {
		return err
	}
	defer func() {
		a.cleanup.release("workspace", func() error { return a.vacate(ctx, space, verdict.Of(ctx, err)) })
	}()
	a.space = space
	if a.notice, err = a.preparation.Restore(ctx, plan, space); err != nil {
		return err
	}
	in, err := a.confine(plan, space)
	if err != nil {
		return err
	}
	if err := a.resume(ctx, in, plan.Capsule, plan.Why); err != nil {
		return err
	}
	if in, err = in.Reach(); err != nil {
		return err
	}
	defer a.jails.Wait(in)
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(a.job.Timeout), verdict.ErrTimeLimit)
	defer cancel()
	err = a.work(limited, in, plan.Adapter)
	if err == nil {
		err = context.Cause(limited)
	}
	if over := context.Cause(ctx); errors.Is(over, jobs.ErrFenced) || errors.Is(over, jobs.ErrDraining) {
		return over // somebody else will do it again: nothing of this counts
	}
	return a.conclude(ctx, in, plan.Adapter, err)
}

// conclude takes what the agent left, and delivers it where that is a success.
// Err is how the work ended.
func (a *attempt) conclude(ctx context.Context, in confine.Jail, adapter agent.Adapter, err error) error {
	if errors.Is(err, verdict.ErrParked) {
		return err // there is no result yet
	}
	began := time.Now()
	change, collected := a.out.Collect(ctx, a.space)
	a.times.took("collect", began)
	if err == nil {
		err = collected
	}
	if err == nil && a.job.ExpectChanges && change.PatchSize == 0 {
		err = verdict.Ended(jobs.NoChanges, "%s", strings.Join(append([]string{"the agent ended without a change"}, change.Notes...), "; "))
	}
	if err == nil && len(a.job.ResultSchema) > 0 && a.out.Result.Now().Value == nil {
		err = verdict.Ended(jobs.NoResult, "the agent ended without setting the job's result")
	}
	if err == nil {
		err = a.draft(ctx, in, adapter, change)
	}
	if err == nil {
		err = a.out.Deliver(ctx, a.space, change)
	}
	return err
}

// name tells the attempt from all others of all jobs: its workspace and its
// jails are called so, and what a kill leaves of them is found by it.
func (a *attempt) name() string {
	return a.rec.ID + "." + strconv.FormatUint(a.claim.Epoch(), 10)
}
