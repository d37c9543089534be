package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/session"
)

// Send gives a control message to the agent of a job, and returns its receipt.
// A prompt for a job that has finished brings it back, if its conversation can
// be continued. One that had no effect is a [*control.RefusedError], which says why.
func (d *Dispatcher) Send(ctx context.Context, id string, c control.Message) (control.Receipt, error) {
	if err := c.Validate(); err != nil {
		return control.Receipt{}, err
	}
	rec, err := d.cfg.Queue.Get(ctx, id)
	if err != nil {
		return control.Receipt{}, err
	}
	return d.sendTo(ctx, rec, c)
}

// sendTo is Send to a job whose record was as given.
func (d *Dispatcher) sendTo(ctx context.Context, rec jobs.Record, c control.Message) (control.Receipt, error) {
	switch {
	case len(c.Images) > 0 && rec.State != jobs.Executing:
		return d.refuseImages(ctx, rec, c)
	case rec.Asking():
		return d.sendParked(ctx, rec, c)
	case rec.State == jobs.Finished && c.Verb == control.Prompt:
		return d.followUp(ctx, rec, c)
	case rec.State == jobs.Finished:
		return control.Receipt{}, control.Refuse(control.Finished, "job %s has finished (%s), and its agent is gone; only a prompt brings it back", rec.ID, rec.Outcome)
	case rec.State != jobs.Executing && rec.Resume > 0 && c.Verb == control.Prompt:
		receipt, _, err := d.cfg.Log.Accept(ctx, rec, c) // for the attempt that is to come
		return receipt, err
	case rec.State != jobs.Executing:
		return control.Receipt{}, control.Refuse(control.NotReady, "job %s is %s: no agent runs yet", rec.ID, rec.State)
	}
	receipt, err := d.cfg.Log.Send(ctx, rec.Session, c)
	if !errors.Is(err, session.ErrNobody) {
		return receipt, err
	}
	now, err := d.cfg.Queue.Get(ctx, rec.ID)
	switch {
	case err != nil:
		return receipt, err
	case now.State != jobs.Executing: // it has ended since
		return d.sendTo(ctx, now, c)
	}
	return receipt, control.Refuse(control.NotReady, "the worker %s of job %s does not listen; should it be dead, another one takes the job over", now.Worker, now.ID)
}

// refuseImages refuses images for a job that no agent runs for, unless they were
// accepted before: whether the agent takes them only its worker can tell.
func (d *Dispatcher) refuseImages(ctx context.Context, rec jobs.Record, c control.Message) (control.Receipt, error) {
	past, err := d.cfg.Log.Past(ctx, rec.Session, rec.ID)
	if err != nil {
		return control.Receipt{}, err
	}
	if i := slices.IndexFunc(past.Receipts, func(r control.Receipt) bool { return r.ID == c.ID }); i >= 0 {
		return past.Receipts[i], nil
	}
	switch {
	case rec.State == jobs.Finished:
		return control.Receipt{}, control.Refuse(control.Finished, "job %s has finished (%s), and images need an agent that runs: bring it back with a prompt without images, and send them then", rec.ID, rec.Outcome)
	case rec.Asking():
		return control.Receipt{}, control.Refuse(control.NotReady, "job %s is parked with a question, and images need an agent that runs: answer the question first", rec.ID)
	}
	return control.Receipt{}, control.Refuse(control.NotReady, "job %s is %s: no agent runs yet that takes images", rec.ID, rec.State)
}

// sendParked takes a message for a job that is parked with a question. An answer
// wakes it once nothing else is open; a prompt waits for that; to stop it is to
// cancel it, since its turn is open.
func (d *Dispatcher) sendParked(ctx context.Context, rec jobs.Record, c control.Message) (control.Receipt, error) {
	switch c.Verb {
	case control.Answer, control.Stop:
	case control.Prompt:
		job, err := d.cfg.Queue.Job(ctx, rec.ID)
		if err != nil {
			return control.Receipt{}, err
		}
		if !job.Agent.Interactive {
			return control.Receipt{}, control.Refuse(control.Cannot, "job %s is parked, and its agent takes no prompts; answer its question", rec.ID)
		}
	default:
		return control.Receipt{}, control.Refuse(control.NotReady, "job %s is parked with a question: no agent runs until it is answered", rec.ID)
	}
	receipt, past, err := d.cfg.Log.Accept(ctx, rec, c)
	if err != nil {
		return receipt, err
	}
	d.log.With(rec.LogFields()...).Info("control message", "verb", c.Verb, "input", c.ID)
	if c.Verb == control.Stop {
		if _, err := d.cfg.Queue.Cancel(ctx, rec.ID, cmp.Or(c.By, "somebody")); err != nil && !errors.Is(err, jobs.ErrFinished) {
			return receipt, err
		}
		return receipt, nil
	}
	return receipt, d.wake(ctx, rec, past)
}

// wake lets a parked job go on if all that it asks is answered.
func (d *Dispatcher) wake(ctx context.Context, rec jobs.Record, past *dialog.Past) error {
	if past.Attempt != rec.Attempt || len(past.Open()) > 0 {
		return nil
	}
	_, err := d.cfg.Queue.Wake(ctx, rec)
	return err
}
