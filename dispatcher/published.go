package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// plain takes a job that some client has published as one message: JSON, or a CloudEvent
// with that JSON as its data. One that cannot be accepted is filed with its reason, and
// its session says so; a broker that does not answer is no reason to lose it.
func (d *Dispatcher) plain(ctx context.Context, s queue.Submission) error {
	var job jobs.Job
	data, err := unwrap(s)
	if err == nil {
		s.Data = data // what is filed can be submitted again without its headers
		job, err = jobs.Decode(data)
	}
	if err == nil {
		job = job.In(jobs.TraceOf(s.Header))
		err = checkChosen(s.Chosen, job)
	}
	if err != nil {
		d.rejected("nats", err)
	} else {
		err = d.take(ctx, s, job)
	}
	if full, ok := errors.AsType[*jobs.QuotaError](err); ok { // it must not keep back those of others
		err = &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "quota", Reason: full.Error()}}}
	}
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	if !ok {
		return err
	}
	// The rejection has the id that the publish itself has: the one that was
	// chosen may be another job's, whose session must not get this event.
	_, err = d.cfg.Log.Append(ctx, session.Source{Job: s.ID, Session: s.ID}, event.New(event.JobRejected{Fields: invalid.Fields}))
	if err != nil {
		return fmt.Errorf("tell of the rejected job: %w", err)
	}
	return d.cfg.Queue.Reject(ctx, s, invalid)
}

// unwrap returns the job of a publish, out of its CloudEvent if it is in one.
func unwrap(s queue.Submission) ([]byte, error) {
	events, err := cloudevent.Decode(s.Header, s.Data)
	if err == nil && len(events) > 1 {
		err = &cloudevent.Error{Reason: "a message on NATS is one event, and this is a batch"}
	}
	data := s.Data
	if err == nil && len(events) == 1 {
		events[0].Trace = cmp.Or(jobs.TraceOf(s.Header), events[0].Trace)
		data, err = events[0].Job()
	}
	if wrong, ok := errors.AsType[*cloudevent.Error](err); ok {
		return nil, &jobs.InvalidError{Fields: []jobs.FieldError{{Field: cmp.Or(wrong.Attribute, "cloudevent"), Reason: wrong.Reason}}}
	}
	return data, err
}

// take submits a job of a plain publish. Its publisher does not hear the id, and
// looks for the job under the one that it chose; so take refuses a key that
// belongs to another job where the id was chosen.
func (d *Dispatcher) take(ctx context.Context, s queue.Submission, job jobs.Job) error {
	id := cmp.Or(s.Chosen, s.ID)
	answer, err := d.submit(ctx, id, job, "nats")
	if err == nil && s.Chosen != "" && answer.ID != id {
		err = &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "key", Reason: fmt.Sprintf("%q belongs to job %s", job.Key, answer.ID)}}}
	}
	if err == nil && len(answer.Differs) > 0 {
		d.log.With(answer.rec.LogFields()...).Warn("a published job has the key of another one, which stays as it is", "key", job.Key, "differs", answer.Differs)
	}
	return err
}

func (d *Dispatcher) rejected(source string, err error) {
	if d.cfg.Hooks.Rejected != nil {
		d.cfg.Hooks.Rejected(source, err)
	}
}
