package jobcmd

import (
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
)

func states() []string {
	return input.Strings(jobs.Pending, jobs.Delayed, jobs.Executing, jobs.Waiting, jobs.Finished)
}

func outcomes() []string {
	return input.Strings(jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip)
}
