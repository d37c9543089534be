package confine

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/policy"
)

// watchesDisk: jails of this system enforce a limit of disk. On other systems the
// worker's own limit is ignored: it would refuse every job.
const watchesDisk = runtime.GOOS == "linux"

// Limits are the limits of the jail that a job requests.
func Limits(asked jobs.Limits) sandbox.Limits {
	return sandbox.Limits{
		Memory: int64(asked.Memory), CPUs: asked.CPUs, CPUWeight: asked.CPUWeight, PIDs: asked.PIDs,
		Disk: int64(asked.Disk), Inodes: asked.Inodes, OutputRate: int64(asked.OutputRate),
	}
}

// Budget is the budget of the network that a job requests.
func Budget(asked jobs.Limits) jailpolicy.Budget {
	return jailpolicy.Budget{Traffic: int64(asked.Traffic), Connections: asked.Connections}
}

// agentLimits are those of the jails of a job.
func agentLimits(job jobs.Job) sandbox.Limits {
	l := Limits(job.Sandbox.Limits)
	if l.Disk > l.WithDefaults().FileSize {
		l.FileSize = l.Disk // one file may be all of it
	}
	return l
}

// Permits asks the policy for everything that a job requests for its jail. Strategy is
// how it gets its files, and delivers how its result leaves the store; "": unknown, or
// not at all.
func (c Config) Permits(job jobs.Job, strategy, delivers string) error {
	return c.Policy.PermitsJob(policy.Request{
		Mode: string(job.Isolation), Workspace: strategy, Deliver: delivers,
		MCPServers: slices.Sorted(maps.Keys(job.Agent.MCPServers)), MCPHosts: serverHosts(job),
		Jail: jailpolicy.Request{
			Backend: job.Sandbox.Backend, Network: string(job.Sandbox.Network), Hosts: job.Sandbox.AllowHosts,
			Limits: agentLimits(job), Budget: Budget(job.Sandbox.Limits),
		},
	})
}

// Reached says which of the job's limits ended a program that did not succeed,
// if one did. The program's own report of its end would blame another cause.
func (j *Jail) Reached(program string, exit sandbox.Exit) error {
	l := j.cfg.Policy.Limits.Fill(agentLimits(j.req.Job)).WithDefaults()
	l.Disk = cmp.Or(l.Disk, j.cfg.DiskLimit)
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
			return verdict.Ended(r.reason, "%s %s: %s", program, r.says, cmp.Or(r.advice, jobs.Reasons[r.reason].Advice))
		}
	}
	return nil
}
