package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/queue"
)

// Resume brings a finished job back, to go on with its conversation instead of
// starting over. Without a prompt it has to have ended without success. An error
// that is a [*control.RefusedError] says why it cannot go on. More, unless it is zero, is
// what the job may spend from now on. A job that is parked because a budget is spent goes on at once.
func (d *Dispatcher) Resume(ctx context.Context, id string, prompt *control.Message, more jobs.Allowance) (jobs.Record, error) {
	rec, err := d.cfg.Queue.Get(ctx, id)
	if err != nil {
		return rec, err
	}
	if jobs.OnBudget(rec) {
		return unpark(ctx, d.cfg.Queue, rec, prompt, more)
	}
	c, err := d.resumable(ctx, rec, prompt)
	if err == nil && more != (jobs.Allowance{}) {
		rec, err = raise(ctx, d.cfg.Queue, rec, more)
	}
	if err != nil {
		return rec, err
	}
	if prompt != nil {
		if _, err = d.Send(ctx, rec.ID, *prompt); err != nil {
			return rec, err
		}
		return d.cfg.Queue.Get(ctx, rec.ID)
	}
	if err = d.finish(ctx, rec); err != nil {
		return rec, err
	}
	return d.reopen(ctx, rec, c, "")
}

// resumable says why a job cannot go on, and returns the capsule from which a finished one can.
// A prompt for one that has not finished is for its agent.
func (d *Dispatcher) resumable(ctx context.Context, rec jobs.Record, prompt *control.Message) (c jobs.Capsule, err error) {
	switch {
	case prompt != nil && rec.State != jobs.Finished:
		return c, nil
	case prompt != nil:
		if err = prompt.Validate(); err == nil && len(prompt.Images) > 0 {
			_, err = d.refuseImages(ctx, rec, *prompt)
		}
	case rec.State != jobs.Finished:
		err = control.Refuse(control.NotReady, "job %s is %s: only a finished job can be resumed", rec.ID, rec.State)
	case rec.Outcome == jobs.Success:
		err = control.Refuse(control.Nothing, "job %s ended in success, and has no work left: give it a prompt", rec.ID)
	}
	if err == nil {
		c, err = lastCapsule(ctx, d.cfg.Store, rec)
	}
	return c, err
}

// unpark has a job go on that is parked because a budget is spent. Where that is still so, it is
// parked again before its agent starts.
func unpark(ctx context.Context, q *queue.Queue, rec jobs.Record, prompt *control.Message, more jobs.Allowance) (jobs.Record, error) {
	var err error
	switch {
	case prompt != nil:
		err = control.Refuse(control.NotReady, "job %s is parked (%s), and no agent runs: resume it without a prompt", rec.ID, rec.Message)
	case more != (jobs.Allowance{}):
		rec, err = raise(ctx, q, rec, more)
	case rec.Reason == jobs.BudgetParked:
		err = control.Refuse(control.Unfit, "job %s is parked (%s): name a larger budget", rec.ID, rec.Message)
	}
	if err != nil {
		return rec, err
	}
	return q.Wake(ctx, rec)
}

// Retry brings back a job that has finished without success, to start over; with
// fromSalvage from what was saved of an earlier attempt. Its session says so, so
// that no follower takes the end of the last attempt for the job's.
func (d *Dispatcher) Retry(ctx context.Context, id, by string, fromSalvage bool) (jobs.Record, error) {
	rec, err := d.cfg.Queue.Get(ctx, id)
	if err == nil && jobs.HasCredentials(rec.Repo) {
		return rec, &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "repo.url", Reason: "has a password or a token in it, which this version refuses: submit the job anew without, and give it to the worker's git (docs/how-to/private-repositories.md)"}}}
	}
	if err == nil && rec.State == jobs.Finished {
		err = d.finish(ctx, rec)
	}
	if err != nil && !errors.Is(err, jobs.ErrNotFound) { // a result may be kept no more
		return rec, fmt.Errorf("retry: %w", err)
	}
	return d.cfg.Queue.Retry(ctx, id, fromSalvage, func(ctx context.Context, rec jobs.Record) error { return d.cfg.Log.Reopen(ctx, rec, by) })
}

// followUp accepts a prompt for a job that has finished, and brings it back. In
// this order a crash in between leaves a message that the agent gets if the job
// ever goes on, and the same message again finishes what was begun.
func (d *Dispatcher) followUp(ctx context.Context, rec jobs.Record, prompt control.Message) (control.Receipt, error) {
	c, err := lastCapsule(ctx, d.cfg.Store, rec)
	if err != nil {
		return control.Receipt{}, err
	}
	if err := d.finish(ctx, rec); err != nil {
		return control.Receipt{}, err
	}
	receipt, past, err := d.cfg.Log.Accept(ctx, rec, prompt)
	if err == nil && slices.Contains(past.Last, prompt.ID) { // else an attempt has had it
		_, err = d.reopen(ctx, rec, c, prompt.By)
	}
	return receipt, err
}

// finish writes the end of a finished job to its session: the worker that settled
// the job may not have done so yet, and the end stands before what comes now.
func (d *Dispatcher) finish(ctx context.Context, rec jobs.Record) error {
	result, err := d.cfg.Store.Result(ctx, rec)
	if err == nil {
		err = d.cfg.Log.Finish(ctx, rec, result)
	}
	return err
}

// reopen makes a finished job pending, to go on from a capsule. The session says so first:
// a pending job may be claimed at once, and its session would not say who resumed it.
func (d *Dispatcher) reopen(ctx context.Context, rec jobs.Record, c jobs.Capsule, by string) (jobs.Record, error) {
	if err := d.cfg.Log.Reopen(ctx, rec, by); err != nil {
		return rec, err
	}
	now, err := d.cfg.Queue.Resume(ctx, rec, c.Epoch)
	if err == nil && now.State == jobs.Pending {
		err = d.cfg.Queue.Enqueue(ctx, now)
	}
	return now, err
}

// lastCapsule returns the capsule from which a finished job can go on.
func lastCapsule(ctx context.Context, store *artifact.Store, rec jobs.Record) (jobs.Capsule, error) {
	c, err := store.LastCapsule(ctx, rec)
	if unfit, ok := errors.AsType[*artifact.CapsuleError](err); ok {
		return c, control.Refuse(control.Finished, "job %s has finished (%s), and cannot continue: %v; submit a new job", rec.ID, rec.Outcome, unfit)
	}
	if err != nil {
		return c, fmt.Errorf("look for a capsule: %w", err)
	}
	return c, nil
}
