package client

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/request"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// submitWithin bounds how long Submit sends a job again that nothing has answered.
	submitWithin = 30 * time.Second
	// servedWithin is how long Submit waits for a first dispatcher to be there.
	servedWithin = 3 * time.Second
)

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
	call := newCall(c, operation.Submit.Row, job)
	call.JobID = id
	began, answered := time.Now(), false
	for wait := c.unanswered; ; wait *= 2 {
		answer, err := submitOnce(ctx, c, call, wait)
		if err == nil {
			// The duplicate of what an earlier request has stored is this job.
			answer.Duplicate = answer.Duplicate && answer.ID != id
			return answer, nil
		}
		answered = answered || !errors.Is(err, ErrNoDispatcher)
		waited := time.Since(began)
		if ctx.Err() != nil || jobs.Code(err) != jobs.CodeUnavailable || waited >= submitWithin || !answered && waited >= servedWithin {
			return operation.Submitted{ID: id}, err
		}
		pause(ctx)
	}
}

// submitOnce sends a job once and waits so long for the answer.
func submitOnce(ctx context.Context, c *Client, call request.Call, wait time.Duration) (operation.Submitted, error) {
	ctx, done := context.WithTimeout(ctx, wait)
	defer done()
	var answer operation.Submitted
	return answer, call.Do(ctx, c.conn, &answer)
}
