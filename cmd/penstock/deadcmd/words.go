package deadcmd

import (
	"maps"
	"slices"

	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
)

func reasons() []string { return input.Strings(slices.Sorted(maps.Keys(jobs.Reasons))...) }

func letterKinds() []string {
	return input.Strings(jobs.DeadJob, jobs.DeadSubmission, jobs.DeadMessage)
}
