package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// plain takes a job that some client has published as one JSON message. One
// that cannot be accepted is filed with its reason, and its session says so; a
// broker that does not answer is no reason to lose it.
func (d *Dispatcher) plain(ctx context.Context, s queue.Submission) error {
	id, err := chosen(s)
	var job jobs.Job
	if err == nil {
		job, err = jobs.Decode(s.Data)
	}
	if err != nil {
		d.rejected("nats", err)
	} else {
		err = d.take(ctx, s, id, job)
	}
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	if !ok {
		return err
	}
	// The rejection has the id that the publish itself has: the one that was
	// chosen may be another job's, whose session is not to be told of this.
	_, err = d.cfg.Log.Append(ctx, session.Source{Job: s.ID, Session: s.ID}, event.New(event.JobRejected{Fields: invalid.Fields}))
	if err != nil {
		return fmt.Errorf("tell of the rejected job: %w", err)
	}
	return d.cfg.Queue.Reject(ctx, s, invalid)
}

// chosen is the id that a plain publish is accepted as.
func chosen(s queue.Submission) (string, error) {
	if s.Chosen == "" {
		return s.ID, nil
	}
	if !jobs.IsID(s.Chosen) {
		return "", &jobs.InvalidError{Fields: []jobs.FieldError{{Field: queue.JobIDHeader, Reason: fmt.Sprintf("%q is not a UUIDv7 in lower case, which a job's id is", s.Chosen)}}}
	}
	return s.Chosen, nil
}

// take submits a job of a plain publish. Its publisher is not told the id, and
// looks for the job under the one that it chose; so a key that belongs to another
// job is refused, where the id was chosen.
func (d *Dispatcher) take(ctx context.Context, s queue.Submission, id string, job jobs.Job) error {
	if s.Chosen != "" && job.Signature != nil && job.Signature.ID != id {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: queue.JobIDHeader, Reason: "is not the id that the job was signed for, " + job.Signature.ID}}}
	}
	answer, err := d.submit(ctx, id, job, "nats")
	if err == nil && s.Chosen != "" && answer.ID != id {
		err = &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "key", Reason: fmt.Sprintf("%q belongs to job %s", job.Key, answer.ID)}}}
	}
	if err == nil && len(answer.Differs) > 0 {
		d.log.Warn("a published job has the key of another one, which stays as it is", "job", answer.ID, "key", job.Key, "differs", answer.Differs)
	}
	return err
}

func (d *Dispatcher) rejected(source string, err error) {
	if d.cfg.Hooks.Rejected != nil {
		d.cfg.Hooks.Rejected(source, err)
	}
}

// verbs are the requests of the bus: penstock.v1.api.<verb>.
func (d *Dispatcher) verbs() map[string]queue.Verb {
	verbs := d.scheduleVerbs()
	maps.Copy(verbs, map[string]queue.Verb{
		"submit": {Do: d.submitVerb},
		"get":    byID(d.cfg.Queue.Get),
		"cancel": byID(func(ctx context.Context, id string) (jobs.Record, error) { return d.cfg.Queue.Cancel(ctx, id, "api") }),
		"result": byID(d.resultOf),
		"why":    byID(d.cfg.Queue.Why),
		"send":   {Do: d.sendVerb, About: jobOf},
	})
	return verbs
}

func (d *Dispatcher) submitVerb(ctx context.Context, data []byte) (any, error) {
	job, err := jobs.Decode(data)
	if err != nil {
		d.rejected("nats", err)
		return nil, err
	}
	return d.Submit(ctx, job, "nats")
}

func (d *Dispatcher) resultOf(ctx context.Context, id string) (jobs.Result, error) {
	rec, err := d.cfg.Queue.Get(ctx, id)
	if err != nil {
		return jobs.Result{}, err
	}
	return d.Result(ctx, rec)
}

// byID makes a verb of a function of a job's id. The request is {"id": "…"}.
func byID[T any](fn func(context.Context, string) (T, error)) queue.Verb {
	return queue.Verb{Do: func(ctx context.Context, data []byte) (any, error) {
		var request struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(data, &request); err != nil || request.ID == "" {
			return nil, &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "id", Reason: `is missing: the request is {"id": "…"}`}}}
		}
		answer, err := fn(ctx, request.ID)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", request.ID, err)
		}
		return answer, nil
	}}
}
