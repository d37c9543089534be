package dispatcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// checkDepends refuses a job that depends on one that is not there. So there
// are no cycles: a job that is named was there before.
func (d *Dispatcher) checkDepends(ctx context.Context, job jobs.Job) error {
	invalid := &jobs.InvalidError{}
	for i, id := range job.DependsOn {
		_, err := d.cfg.Queue.Get(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			invalid.Fields = append(invalid.Fields, jobs.FieldError{Field: fmt.Sprintf("depends_on[%d]", i), Reason: "there is no job " + id})
			continue
		}
		if err != nil {
			return fmt.Errorf("look for the jobs that this one depends on: %w", err)
		}
	}
	if len(invalid.Fields) > 0 {
		return invalid
	}
	return nil
}
