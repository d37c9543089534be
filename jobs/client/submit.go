package client

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/pause"
)

// makeWithin bounds how long a request that makes a job is sent again while no answer
// comes.
const makeWithin = 30 * time.Second

// Submit submits a job. When it returns without an error the job is stored and will
// run; submitting again with the same key returns the same job.
//
// Submit chooses the job's id before it asks. Where no answer comes it sends the job
// again with that id, so a dispatcher that dies, or an answer that is lost, does not
// make a second job. After half a minute, and when ctx ends, it gives up. The job may be
// stored all the same, so errors come with the id: Get tells.
func (c *Client) Submit(ctx context.Context, job jobs.Job) (operation.Submitted, error) {
	id := c.newJobID()
	if job.Signature != nil {
		id = job.Signature.ID
	}
	return c.submit(ctx, job, id)
}

// SubmitJSON is [Client.Submit] for a job that the caller need not understand: the
// dispatcher reads it, and refuses what it does not know.
func (c *Client) SubmitJSON(ctx context.Context, job json.RawMessage) (operation.Submitted, error) {
	id := c.newJobID()
	var signed struct{ Signature struct{ ID string } }
	if json.Unmarshal(job, &signed) == nil && jobs.IsID(signed.Signature.ID) {
		id = signed.Signature.ID
	}
	return c.submit(ctx, job, id)
}

// WithJobID returns a client whose next request that makes a job gives it this id, a
// UUIDv7. It is for programs that pass on the requests of others, who repeat them.
func (c *Client) WithJobID(id string) *Client {
	other := *c
	other.jobID = id
	return &other
}

// WithTrace returns a client whose requests are part of a trace. A job that they make is
// so, too, unless it names another one or is signed.
func (c *Client) WithTrace(t jobs.Trace) *Client {
	other := *c
	other.trace = t
	return &other
}

func (c *Client) newJobID() string {
	if c.jobID != "" {
		return c.jobID
	}
	return jobs.NewID()
}

func (c *Client) submit(ctx context.Context, job any, id string) (operation.Submitted, error) {
	made, err := makeJob[operation.Submitted](ctx, c, newCall(c, operation.Submit.Row, job), id)
	if err != nil {
		return operation.Submitted{ID: id}, err
	}
	return chosen(made, id), nil
}

// chosen returns an answer to requests that chose the job's id: what is a duplicate of
// an earlier one of these requests is not one to their caller.
func chosen(made operation.Submitted, id string) operation.Submitted {
	made.Duplicate = made.Duplicate && made.ID != id
	return made
}

// makeJob makes a request from which a job with an id comes, again while no answer
// comes, which makes no second job.
func makeJob[A any](ctx context.Context, c *Client, request call, id string) (A, error) {
	request.jobID, request.within = id, c.unanswered
	began, answered := time.Now(), false
	for {
		var answer A
		err := request.do(ctx, c.transport, &answer)
		if err == nil {
			return answer, nil
		}
		absent := errors.Is(err, ErrNoDispatcher) // after some time in which one could have come
		over := absent && !answered || time.Since(began) >= makeWithin
		if ctx.Err() != nil || jobs.Code(err) != jobs.CodeUnavailable || over && c.waits == nil {
			return answer, err
		}
		if c.waits != nil {
			c.waits(err)
		}
		answered = answered || !absent
		request.within = min(2*request.within, answerWithin)
		pause.For(ctx, askAgainAfter)
	}
}
