package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
)

// origin returns the capsule that a fork begins from, or nil: it is no fork. What
// could not begin from it is refused.
func (d *Dispatcher) origin(ctx context.Context, job jobs.Job) (*jobs.Capsule, error) {
	if job.Fork == "" {
		return nil, nil
	}
	wrong := func(format string, args ...any) error {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "fork", Reason: fmt.Sprintf(format, args...)}}}
	}
	from, err := d.cfg.Queue.Get(ctx, job.Fork)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return nil, wrong("there is no job %s", job.Fork)
	case err != nil:
		return nil, fmt.Errorf("look for the fork's origin: %w", err)
	case from.Repo != job.Repo.URL:
		return nil, wrong("job %s belongs to another repository: its changes are based on a commit there", from.ID)
	case from.Agent != job.Agent.Name:
		return nil, wrong("job %s used agent %s, and no other agent can continue its conversation", from.ID, from.Agent)
	}
	c, err := d.cfg.Store.LastCapsule(ctx, from)
	if unfit, ok := errors.AsType[*artifact.CapsuleError](err); ok {
		return nil, wrong("job %s cannot be forked: %v", from.ID, unfit)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("look for a capsule: %w", err)
	case c.Work == nil:
		return nil, wrong("job %s worked in a user's own directory, which cannot be copied", from.ID)
	case job.Repo.Commit != "" && job.Repo.Commit != c.Work.BaseCommit:
		return nil, wrong("job %s began from commit %s, not from repo.commit", from.ID, c.Work.BaseCommit)
	}
	return &c, nil
}
