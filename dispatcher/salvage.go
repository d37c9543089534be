package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// checkSalvage refuses a job that could not begin from the salvage it names.
func (d *Dispatcher) checkSalvage(ctx context.Context, job jobs.Job) error {
	if job.FromSalvage == "" {
		return nil
	}
	wrong := func(format string, args ...any) error {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "from_salvage", Reason: fmt.Sprintf(format, args...)}}}
	}
	from, err := d.cfg.Queue.Get(ctx, job.FromSalvage)
	if errors.Is(err, jobs.ErrNotFound) {
		return wrong("there is no job %s", job.FromSalvage)
	}
	if err != nil {
		return fmt.Errorf("look for the salvage: %w", err)
	}
	if from.Repo != job.Repo.URL {
		return wrong("job %s is of another repository: what was saved of it leads from a commit there", from.ID)
	}
	list, err := d.cfg.Store.Salvages(ctx, from)
	if err != nil {
		return fmt.Errorf("look for the salvage: %w", err)
	}
	if len(list) == 0 {
		return wrong("nothing was saved of job %s: penstock job salvage %s lists what was", from.ID, from.ID)
	}
	if base := list[len(list)-1].BaseCommit; job.Repo.Commit != "" && job.Repo.Commit != base {
		return wrong("what was saved of job %s leads from commit %s, not from repo.commit", from.ID, base)
	}
	return nil
}
