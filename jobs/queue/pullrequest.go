package queue

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// SetPullRequest writes what has become of the pull request of a finished job, unless the
// job has another attempt than rec meanwhile: then it returns [jobs.ErrFenced].
func SetPullRequest(ctx context.Context, q *Queue, rec jobs.Record, pr jobs.PullRequest) error {
	for {
		e, err := q.Read(ctx, rec.ID)
		if err == nil && (e.State != jobs.Finished || e.Epoch != rec.Epoch) {
			err = fmt.Errorf("pull request of job %s: %w", rec.ID, jobs.ErrFenced)
		}
		if err != nil {
			return err
		}
		e.PullRequest = &pr
		if _, err = q.put(ctx, e); !isConflict(err) {
			return err
		}
	}
}
