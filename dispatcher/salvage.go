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
		return wrong("job %s belongs to another repository: its saved changes are based on a commit there", from.ID)
	}
	list, err := d.cfg.Store.Salvages(ctx, from)
	if err != nil {
		return fmt.Errorf("look for the salvage: %w", err)
	}
	if len(list) == 0 {
		return wrong("job %s has no saved changes: see penstock job salvage %s", from.ID, from.ID)
	}
	if base := list[len(list)-1].BaseCommit; job.Repo.Commit != "" && job.Repo.Commit != base {
		return wrong("the saved changes of job %s are based on commit %s, not on repo.commit", from.ID, base)
	}
	return nil
}
