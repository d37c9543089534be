package jobflags

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Submit hands a job in, and says so if its key belongs to a job that differs
// from it, which stays as it is. Where the key is strict, that is an error.
func Submit(ctx context.Context, shell cli.Shell, p *pool.Pool, job jobs.Job, strictKey bool) (operation.Submitted, error) {
	answer, err := p.Submit(ctx, job.In(Trace()), "cli")
	if err == nil && strictKey {
		err = RefuseDiffering(job, answer)
	}
	if err == nil && len(answer.Differs) > 0 {
		shell.Err.Printf("penstock: %s; that job does not change (--strict-key refuses this)\n", keyTaken(job, answer))
	}
	return answer, err
}

// Trace returns the trace that this process is part of, as its environment says: that of
// a build, or of the job whose agent has started it.
func Trace() jobs.Trace {
	return jobs.ReadTrace(os.Getenv(strings.ToUpper(jobs.TraceParent)), os.Getenv(strings.ToUpper(jobs.TraceState)))
}

func keyTaken(job jobs.Job, answer operation.Submitted) string {
	return fmt.Sprintf("key %s belongs to job %s already, which differs in %s", job.Key, answer.ID, strings.Join(answer.Differs, ", "))
}

// RefuseDiffering is the error of --strict-key, where the key belongs to a
// job that differs.
func RefuseDiffering(job jobs.Job, answer operation.Submitted) error {
	if len(answer.Differs) == 0 {
		return nil
	}
	return cli.Usage("use another key, or leave --strict-key out to get that job", "%s", keyTaken(job, answer))
}
