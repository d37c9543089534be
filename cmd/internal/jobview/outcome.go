package jobview

import (
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// Outcome turns results into the error that has their exit code. A command
// that failed for another reason keeps that one.
func Outcome(err error, results ...jobs.Result) error {
	if err != nil {
		return err
	}
	counts := map[jobs.Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	code := cli.OutcomeCode(counts)
	if code == cli.ExitOK {
		return nil
	}
	for _, r := range results {
		if r.Outcome != jobs.Success && r.Outcome != jobs.Skip {
			return cli.Fail(code, jobs.Reasons[r.Reason].Advice, "job %s: %s (%s): %s", r.Job, r.Outcome, r.Reason, r.Message)
		}
	}
	return nil
}
