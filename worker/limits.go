package worker

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// watchesDisk: jails of this system keep a limit of disk. Where none does, the
// worker's own is not asked for: it would refuse every job.
const watchesDisk = runtime.GOOS == "linux"

// Limits are those of a jail that a job asks for.
func Limits(asked jobs.Limits) sandbox.Limits {
	return sandbox.Limits{
		Memory: int64(asked.Memory), CPUs: asked.CPUs, CPUWeight: asked.CPUWeight, PIDs: asked.PIDs,
		Disk: int64(asked.Disk), Inodes: asked.Inodes, OutputRate: int64(asked.OutputRate),
	}
}

// Budget is that of the way out of a jail that a job asks for.
func Budget(asked jobs.Limits) policy.Budget {
	return policy.Budget{Traffic: int64(asked.Traffic), Connections: asked.Connections}
}

// reached says which of the job's limits ended a program that did not succeed,
// if one did. What the program itself says of its end would blame somebody
// else.
func (a *attempt) reached(what string, exit sandbox.Exit) error {
	l := a.cfg.Policy.Limits.Fill(a.limits()).WithDefaults()
	l.Disk = cmp.Or(l.Disk, a.cfg.DiskLimit)
	for _, r := range []struct {
		limit  sandbox.Feature
		reason jobs.Reason
		says   string
		advice string // "": the reason's
	}{
		{sandbox.FeatureMemory, jobs.OutOfMemory, fmt.Sprintf("reached its memory limit of %v", jobs.Bytes(l.Memory)), ""},
		{sandbox.FeatureDisk, jobs.DiskLimit, fmt.Sprintf("wrote more than its disk limit of %v", jobs.Bytes(l.Disk)), ""},
		{sandbox.FeatureInodes, jobs.InodeLimit, fmt.Sprintf("made more than the %d files and directories of its limit", l.Inodes), ""},
		{sandbox.FeatureFileSize, jobs.DiskLimit, fmt.Sprintf("wrote a file up to %v, the limit for one file", jobs.Bytes(l.FileSize)),
			"raise sandbox.limits.disk above it, or file_size in the worker's policy"},
		{sandbox.FeaturePIDs, jobs.ProcessLimit, fmt.Sprintf("reached its limit of %d processes and threads", l.PIDs), ""},
	} {
		if slices.Contains(exit.Reached, r.limit) {
			return verdict.Ended(r.reason, "%s %s: %s", what, r.says, cmp.Or(r.advice, jobs.Reasons[r.reason].Advice))
		}
	}
	return nil
}

// noteLimits records the limits that a program has run into, whether it ended
// by them or went on: an agent may live on without the compiler that it lost.
func (a *attempt) noteLimits(program string, exit sandbox.Exit) {
	for _, f := range exit.Reached {
		a.refused.Note(policy.KindLimit, string(f), program+" reached it")
	}
}

// unexplained are ends that say that something went wrong, but not what.
var unexplained = []jobs.Reason{jobs.AgentFailed, jobs.AgentCrashed, jobs.AgentProtocol}
