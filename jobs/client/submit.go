package client

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
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
	id := jobs.NewID()
	if job.Signature != nil {
		id = job.Signature.ID
	}
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
		err := request.do(ctx, c.conn, &answer)
		if err == nil {
			return answer, nil
		}
		absent := errors.Is(err, ErrNoDispatcher) // after some time in which one could have come
		over := absent && !answered || time.Since(began) >= makeWithin
		if ctx.Err() != nil || jobs.Code(err) != jobs.CodeUnavailable || over && c.waits == nil {
			return answer, err
		}
		answered = answered || !absent
		request.within = min(2*request.within, answerWithin)
		pause(ctx)
	}
}
