package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs/amend"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/queue"
)

// raise has a finished job, or a parked one, be allowed to spend more. It is done before the job
// goes on, so the same request again finishes what was begun.
func raise(ctx context.Context, q *queue.Queue, rec jobs.Record, more jobs.Allowance) (jobs.Record, error) {
	if rec.State != jobs.Finished && !jobs.OnBudget(rec) {
		return rec, control.Refuse(control.NotReady, "job %s is %s: only a finished job can be given a larger budget", rec.ID, rec.State)
	}
	job, err := q.Job(ctx, rec.ID)
	if err != nil {
		return rec, fmt.Errorf("look for the budget of job %s: %w", rec.ID, err)
	}
	if err := raises(rec, job, more); err != nil {
		return rec, control.Refuse(control.Unfit, "job %s: %v", rec.ID, err)
	}
	return amend.Raise(ctx, q, rec, more)
}

// raises checks what a finished job is to be allowed to spend: no less than so far, and more
// than it has spent.
func raises(rec jobs.Record, job jobs.Job, more jobs.Allowance) error {
	spent, now := rec.SpentBefore.Add(rec.LastAttempt), rec.Allowed(job).Budget
	switch {
	case job.Signature != nil:
		return errors.New("the budget of a signed job is a part of what was signed: submit it anew with another one")
	case more.USD < 0 || more.USD > jobs.MaxUSD || more.Tokens < 0 || more.Tokens > jobs.MaxTokens:
		return fmt.Errorf("%v dollars and %d tokens are no budget", more.USD, more.Tokens)
	case more.USD > 0 && now.USD == 0, more.Tokens > 0 && now.Tokens == 0:
		return errors.New("it has no budget of that kind, so there is nothing to raise")
	case more.USD > 0 && (more.USD < now.USD || more.USD <= spent.CostUSD):
		return fmt.Errorf("%v dollars are not more than its budget of %v, of which %.4f are spent", more.USD, now.USD, spent.CostUSD)
	case more.Tokens > 0 && (more.Tokens < now.Tokens || more.Tokens <= spent.Usage.Total()):
		return fmt.Errorf("%d tokens are not more than its budget of %d, of which %d are used", more.Tokens, now.Tokens, spent.Usage.Total())
	}
	return nil
}
