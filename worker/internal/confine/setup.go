package confine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// SetupKey names everything that the job's setup depends on besides the commit, as far
// as this host knows: the commands, and their jail, in a period of time. It is "" if
// the output of setup is for this job alone, and then it returns why.
func (j *Jail) SetupKey(period int64) (key, why string, err error) {
	other := *j
	other.req.Trace = jobs.Trace{} // is another one in each attempt, and no command works by it
	s, err := other.around()
	if err != nil {
		return "", "", err
	}
	job := j.req.Job
	switch {
	case len(job.Secrets) > 0:
		return "", "the job has secrets, which could be in what setup writes", nil
	case slices.ContainsFunc(s.Mounts, func(m sandbox.Mount) bool { return m.Writable }):
		return "", "the worker's policy lets it write elsewhere, too", nil
	}
	s.Args, s.Label = nil, "" // of this attempt
	depends := struct {
		Version, Backend     string
		Setup, Hosts, Weaker []string
		Jail                 sandbox.Spec
		Limits               jobs.Limits // variables of the network do not matter in a jail
		Period               int64
	}{
		"1", j.Backend.Name(), job.Setup, slices.Compact(slices.Sorted(slices.Values(j.hosts))), job.Sandbox.AllowWeaker, s, job.Sandbox.Limits, period,
	}
	data, err := json.Marshal(depends)
	if err != nil {
		return "", "", verdict.Failed(jobs.WorkspaceFailed, "name what setup depends on", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), "", nil
}
