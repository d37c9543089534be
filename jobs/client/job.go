package client

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// Get returns a job's record. An id may be abbreviated wherever a method takes one.
func (c *Client) Get(ctx context.Context, id string) (jobs.Record, error) {
	return Ask(ctx, c, operation.Get, operation.Ref{ID: id})
}

// Show returns all that the pool knows of a job. To a role that may not see what was
// submitted it shows the record and the result.
func (c *Client) Show(ctx context.Context, id string) (operation.Shown, error) {
	if c.May(operation.Show.Row) {
		return Ask(ctx, c, operation.Show, operation.Ref{ID: id})
	}
	rec, err := c.Get(ctx, id)
	shown := operation.Shown{Record: rec}
	if err != nil {
		return shown, err
	}
	if cause, ok := jobs.Reasons[rec.Reason]; ok {
		shown.Cause = &cause
	}
	if rec.State == jobs.Finished {
		var result jobs.Result
		result, err = c.Result(ctx, rec.ID)
		shown.Result = &result
	}
	return shown, err
}

// List returns the jobs that a request selects, in the order of submission, page by
// page, of as many as its limit says. It ends behind the last one, or with an error.
func (c *Client) List(ctx context.Context, request operation.ListRequest) iter.Seq2[jobs.Record, error] {
	return pages(request.After, func(after string) ([]jobs.Record, string, error) {
		request.After = after
		page, err := Ask(ctx, c, operation.List, request)
		return page.Jobs, page.Next, err
	})
}

// Wait waits until a job has finished and returns its result. Once a dispatcher has
// known the job, Wait outlives dispatchers and brokers that are away for a while.
func (c *Client) Wait(ctx context.Context, id string) (jobs.Result, error) {
	rec, err := Ask(ctx, c, operation.Wait, operation.WaitRequest{ID: id, For: jobs.Duration(time.Millisecond)})
	if err != nil {
		return jobs.Result{}, err
	}
	patient := c
	if c.waits == nil {
		patient = c.Patient(func(error) {})
	}
	for rec.State != jobs.Finished {
		rec, err = Ask(ctx, patient, operation.Wait, operation.WaitRequest{ID: rec.ID, For: jobs.Duration(operation.MaxWait)})
		switch {
		case ctx.Err() != nil:
			return jobs.Result{}, context.Cause(ctx)
		case err != nil:
			return jobs.Result{}, err
		}
	}
	return patient.Result(ctx, rec.ID)
}

// askAgainAfter is how long a pool that does not answer, or is busy, is left alone.
const askAgainAfter = 500 * time.Millisecond

// away reports whether the pool does not answer, which may pass.
func away(err error) bool {
	code := jobs.Code(err)
	return code == jobs.CodeUnavailable || code == jobs.CodeBusy
}

// Result returns the result of a finished job. For another one the error is
// [jobs.ErrNotFinished].
func (c *Client) Result(ctx context.Context, id string) (jobs.Result, error) {
	return Ask(ctx, c, operation.Result, operation.Ref{ID: id})
}

// Why says what keeps a job where it is, and what would change that.
func (c *Client) Why(ctx context.Context, id string) (why.Standing, error) {
	return Ask(ctx, c, operation.Why, operation.Ref{ID: id})
}

// Send gives a message to the agent of a job. One that had no effect is a
// [*control.RefusedError]. A message without an id gets one.
func (c *Client) Send(ctx context.Context, id string, m control.Message) (control.Receipt, error) {
	if m.ID == "" {
		m.ID = jobs.NewID()
	}
	if m.By == "" {
		m.By = c.cfg.By
	}
	return Ask(ctx, c, operation.Send, operation.SendRequest{ID: id, Control: m})
}

// Answer answers a question that the agent of a job waits with: m has what an answer has,
// options or a text, and the question's id where several are open. The job goes on, also
// one that was parked meanwhile.
func (c *Client) Answer(ctx context.Context, id string, m control.Message) (control.Receipt, error) {
	m.Verb = control.Answer
	return c.Send(ctx, id, m)
}

// Cancel ends a job, queued or running. One that has ended is [jobs.ErrFinished].
func (c *Client) Cancel(ctx context.Context, id string) (jobs.Record, error) {
	return Ask(ctx, c, operation.Cancel, operation.Ref{ID: id})
}

// Review notes what was decided about the result of a finished job. Where the request has an
// epoch, and the job another result by now, nothing is noted.
func (c *Client) Review(ctx context.Context, request operation.ReviewRequest) (jobs.Record, error) {
	return Ask(ctx, c, operation.Review, request)
}

// PullRequest has the pool open a draft pull request of the branch that a job has delivered, and
// returns the record as it is then: what becomes of it is written there. One that is open stays.
func (c *Client) PullRequest(ctx context.Context, request operation.PullRequestRequest) (jobs.Record, error) {
	return Ask(ctx, c, operation.PullRequest, request)
}

// Purge removes all that is kept of a finished job, for good; with session also the other jobs
// of its session. One that has not finished is [jobs.ErrNotFinished]. It may be repeated.
func (c *Client) Purge(ctx context.Context, id string, session bool) (operation.Purged, error) {
	return Ask(ctx, c, operation.Purge, operation.PurgeRequest{ID: id, Session: session})
}

// Retry runs a finished job again that did not succeed; with fromSalvage it begins
// from what was saved of an earlier attempt.
func (c *Client) Retry(ctx context.Context, id string, fromSalvage bool) (jobs.Record, error) {
	return Ask(ctx, c, operation.Retry, operation.RetryRequest{ID: id, FromSalvage: fromSalvage})
}

// Resume brings a finished job back, to go on with its agent's conversation: with a
// prompt, or, where that is nil, with what was left to do.
func (c *Client) Resume(ctx context.Context, request operation.ResumeRequest) (jobs.Record, error) {
	return Ask(ctx, c, operation.Resume, request)
}

// Fork submits jobs that begin with a copy of a job's conversation, one after the other.
// With an error it returns those that it has submitted. As [Client.Submit] does, it asks
// again where no answer comes, which makes no other job.
func (c *Client) Fork(ctx context.Context, id, prompt string, count int) ([]operation.Submitted, error) {
	var forks []operation.Submitted
	for range max(1, count) {
		fork := c.newJobID()
		made, err := makeJob[operation.Forked](ctx, c, newCall(c, operation.Fork.Row, operation.ForkRequest{ID: id, Prompt: prompt}), fork)
		if err != nil {
			return forks, err
		}
		for _, job := range made.Jobs {
			forks = append(forks, chosen(job, fork))
		}
	}
	return forks, nil
}

// Artifacts lists the artifacts of a job's attempt with an epoch; zero is the last.
func (c *Client) Artifacts(ctx context.Context, id string, epoch uint64) (operation.ArtifactList, error) {
	return Ask(ctx, c, operation.Artifacts, operation.ArtifactsRequest{ID: id, Epoch: epoch})
}

// Artifact opens an artifact of an attempt, in the object store. The id is a whole
// one. A submitter may not read that store: [Client.Patch] works for all. Close it.
func (c *Client) Artifact(ctx context.Context, id string, epoch uint64, name string) (io.ReadCloser, error) {
	return c.transport.artifact(ctx, id, epoch, name)
}

// Patch opens the patch of a finished job, which is empty if the job changed nothing.
// Close it.
func (c *Client) Patch(ctx context.Context, id string) (io.ReadCloser, error) {
	return c.transport.patch(ctx, c, id)
}
