package worker

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/internal/diskspace"
	"github.com/penstock-run/penstock/worker/internal/preparation"
	"github.com/penstock-run/penstock/worker/internal/sharedbudget"
	"github.com/penstock-run/penstock/worker/internal/sharedlimits"
	"github.com/penstock-run/penstock/worker/internal/spending"
	"github.com/penstock-run/penstock/worker/internal/testreports"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// How long the steps may take that must still happen when an attempt is over.
const (
	settleLimit    = 2 * time.Minute
	surrenderLimit = 30 * time.Second
)

// An attempt is one try of a job, from the claim to the verdict:
//
//	handle: keep ─▶ begin ─▶ run ─▶ settle
//	run:    Plan ─▶ afford ─▶ admit ─▶ Workspace ─▶ equip ─▶ work ─▶ conclude
//
// Its parts know what was claimed, but not each other.
type attempt struct {
	of          *claimed
	rec         jobs.Record // as the attempt has left it
	tally       *diskspace.Tally
	preparation *preparation.Preparation
	inbox       *inbox
	runs        *agentRuns
}

// handle carries one claim to its end: settled, handed back, or lost.
func (w *Worker) handle(ctx context.Context, claim *queue.Claim) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a, missing := w.newAttempt(claim, end)
	a.of.log.Info("claimed", "agent", a.rec.Agent)
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

// attend runs the attempt, and listens to the session meanwhile.
func (a *attempt) attend(ctx context.Context) error {
	stop, err := a.inbox.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	stopTerminals, err := a.of.cfg.Log.ServeTerminals(a.rec.Session, a.inbox.terminal)
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
			err := a.of.claim.Keep(ctx)
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
		Job: a.rec.ID, Session: a.rec.Session, Agent: a.rec.Agent, Attempt: a.rec.Attempt, Epoch: a.of.claim.Epoch(), Trace: a.rec.Span(a.rec.Attempt),
		Stored: a.of.claim.Stored,
	}
	first := event.New(event.JobClaimed{Worker: a.of.cfg.Name, Epoch: src.Epoch, Lost: a.of.claim.Previous()})
	writer, err := a.of.cfg.Log.Writer(ctx, src, first)
	if err != nil {
		return verdict.Failed(jobs.StoreFailed, "open the session's log", err)
	}
	a.of.writer = writer
	a.of.events.Start(ctx, writer)
	return nil
}

// run is the way of a job through a worker. A nil error is a success.
//
// While the agent runs, this function and those below it wait, once for each session that is live. So
// what needs much of the stack is in functions that have returned by then.
func (a *attempt) run(ctx context.Context) (err error) {
	plan, err := a.preparation.Plan(ctx)
	if err != nil {
		return err
	}
	unpin, err := a.runs.pin(ctx, plan)
	if err != nil {
		return err
	}
	defer unpin()
	if err := a.afford(ctx, plan); err != nil {
		return err
	}
	defer a.runs.shared.Flush()
	if err := a.admit(ctx, plan); err != nil {
		return err
	}
	space, err := a.preparation.Workspace(ctx, plan)
	if err != nil {
		return err
	}
	defer func() {
		a.of.cleanup.release("workspace", func() error { return a.vacate(ctx, space, verdict.Of(ctx, err)) })
	}()
	if err := a.equip(ctx, plan, space); err != nil {
		return err
	}
	defer a.of.jails.Wait(a.runs.in)
	err = a.work(ctx, space)
	if over := context.Cause(ctx); errors.Is(over, jobs.ErrFenced) || errors.Is(over, jobs.ErrDraining) {
		return over // somebody else will do it again: nothing of this counts
	}
	return a.conclude(ctx, space, err)
}

// afford returns why no budget allows the job to begin, and opens those that it shares.
func (a *attempt) afford(ctx context.Context, plan *preparation.Plan) (err error) {
	if err := spending.Afford(a.rec, plan.Job.Budget); err != nil {
		return err
	}
	api := modelAPI(plan)
	a.runs.shared, err = sharedbudget.Afford(ctx, ledger.Of(a.of.cfg.Queue.Workers()), sharedbudget.Job{Record: a.rec, Job: plan.Job, API: api, Keys: a.of.cfg.Gates[api].KeyNames(a.rec.Queue)})
	return err
}

// admit returns why the limits of a model API do not allow the job to begin, if it makes calls.
func (a *attempt) admit(ctx context.Context, plan *preparation.Plan) error {
	if plan.Adapter.About().API == "" && plan.Job.Agent.Model == "" {
		return nil
	}
	return sharedlimits.Admit(ctx, ratelimit.Of(a.of.cfg.Queue.Workers()), a.of.cfg.Gates[modelAPI(plan)], a.rec.Queue, plan.Job.Agent.Model)
}

// modelAPI is the model API whose keys a job uses.
func modelAPI(plan *preparation.Plan) string { return cmp.Or(plan.Adapter.About().API, "anthropic") }

// equip restores what the attempt begins from, and makes the jail of its programs.
func (a *attempt) equip(ctx context.Context, plan *preparation.Plan, space *workspace.Workspace) (err error) {
	a.runs.plan, a.runs.space = plan, space
	a.runs.reports = testreports.New(space, plan.Job.CheckReports, a.of.clean)
	if a.runs.notice, err = a.preparation.Restore(ctx, plan, space); err != nil {
		return err
	}
	if a.runs.in, err = a.of.confine(plan, space); err != nil {
		return err
	}
	if err := a.runs.begin(ctx, plan.Capsule, plan.Why); err != nil {
		return err
	}
	return a.runs.in.Reach()
}

// conclude takes what the agent left, and delivers it where that is a success.
// Err is how the work ended.
func (a *attempt) conclude(ctx context.Context, space *workspace.Workspace, err error) error {
	if errors.Is(err, verdict.ErrParked) {
		return err // there is no result yet
	}
	began := time.Now()
	change, collected := a.of.out.Collect(ctx, space)
	a.of.times.took("collect", began)
	a.of.touched.Patch(ctx, space.Base(), change.Patch)
	if err == nil {
		err = collected
	}
	if err == nil && a.of.job.ExpectChanges && change.PatchSize == 0 {
		err = verdict.Ended(jobs.NoChanges, "%s", strings.Join(append([]string{"the agent ended without a change"}, change.Notes...), "; "))
	}
	if err == nil && len(a.of.job.ResultSchema) > 0 && a.of.out.Result.Now().Value == nil {
		err = verdict.Ended(jobs.NoResult, "the agent ended without setting the job's result")
	}
	if err == nil {
		err = a.runs.draft(ctx, change)
	}
	if err == nil {
		err = a.deliver(ctx, change)
	}
	return err
}

// deliver makes the branch that the job asks for, if it does.
func (a *attempt) deliver(ctx context.Context, change workspace.Change) error {
	if a.of.job.Deliver.OnBranch() {
		defer a.of.times.stage("deliver", time.Now())
	}
	return a.of.out.Deliver(ctx, change)
}
