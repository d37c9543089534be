package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/session"
)

// Send gives a control message to the agent of a job that runs, and returns
// its receipt. One that had no effect is a [*control.RefusedError], which says why.
func (d *Dispatcher) Send(ctx context.Context, id string, c control.Message) (control.Receipt, error) {
	if err := c.Validate(); err != nil {
		return control.Receipt{}, err
	}
	rec, err := d.cfg.Queue.Get(ctx, id)
	if err != nil {
		return control.Receipt{}, err
	}
	if err := runs(rec); err != nil {
		return control.Receipt{}, err
	}
	receipt, err := d.cfg.Log.Send(ctx, rec.Session, c)
	if !errors.Is(err, session.ErrNobody) {
		return receipt, err
	}
	// It may have ended since.
	if rec, err = d.cfg.Queue.Get(ctx, rec.ID); err != nil {
		return receipt, err
	}
	if err := runs(rec); err != nil {
		return receipt, err
	}
	return receipt, control.Refuse(control.NotReady, "the worker %s of job %s does not listen; should it be dead, another one takes the job over", rec.Worker, rec.ID)
}

// runs refuses what only a job that runs can take.
func runs(rec jobs.Record) error {
	switch rec.State {
	case jobs.Executing:
		return nil
	case jobs.Finished:
		return control.Refuse(control.Finished, "job %s has finished (%s), and its agent is gone; submit a new job", rec.ID, rec.Outcome)
	}
	return control.Refuse(control.NotReady, "job %s is %s: no agent runs yet", rec.ID, rec.State)
}

// sendVerb answers {"id": "<job>", "control": {…}}.
func (d *Dispatcher) sendVerb(ctx context.Context, data []byte) (any, error) {
	var request struct {
		ID      string          `json:"id"`
		Control control.Message `json:"control"`
	}
	if err := jobs.DecodeStrict(data, &request); err != nil {
		return nil, err
	}
	if request.ID == "" {
		return nil, &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "id", Reason: `is missing: the request is {"id": "…", "control": {…}}`}}}
	}
	receipt, err := d.Send(ctx, request.ID, request.Control)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", request.ID, err)
	}
	return receipt, nil
}
