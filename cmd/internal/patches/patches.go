// Package patches fetches the patches of jobs and applies them to work trees of the user.
package patches

import (
	"context"
	"fmt"
	"io"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
)

// Unchanged is the error for a job without a change, where the user wants one.
func Unchanged(rec jobs.Record) error {
	return cli.Fail(cli.ExitNotFound, "", "job %s changed nothing", rec.ID)
}

// Write writes the patch of a finished job.
func Write(ctx context.Context, p *pool.Pool, rec jobs.Record, w io.Writer) error {
	if rec.State != jobs.Finished {
		return cli.Fail(cli.ExitNotFound, "penstock wait "+rec.ID, "job %s is %s: it has no patch yet", rec.ID, rec.State)
	}
	patch, err := p.Client.Patch(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer patch.Close()
	if _, err := io.Copy(w, patch); err != nil {
		return fmt.Errorf("patch of job %s: %w", rec.ID, err)
	}
	return nil
}
