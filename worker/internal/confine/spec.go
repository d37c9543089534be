package confine

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Path is the default PATH in the jail.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// without lists the features that a job with the backend none does not have. The job
// or the operator must name that backend: it is never chosen otherwise. The result
// lists the features. Limits that a job sets must still be enforced.
var without = []sandbox.Feature{
	sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
	sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureTemporary,
}

// base is the jail of every program of the attempt.
func (j *Jail) base() (sandbox.Spec, error) {
	s, err := j.around()
	if err == nil {
		j.req.Space.Show(&s)
	}
	return s, err
}

// around is the jail without the workspace.
func (j *Jail) around() (sandbox.Spec, error) {
	job := j.req.Job
	s := sandbox.Spec{Env: j.environment(), Limits: agentLimits(job), Label: j.req.Label, Image: job.Image}
	if job.Sandbox.Preset != "strict" {
		s.Preset = sandbox.Preset(job.Sandbox.Preset)
	}
	j.connect(&s)
	for _, feature := range job.Sandbox.AllowWeaker {
		s = s.Allow(sandbox.Feature(feature))
	}
	p := j.cfg.Policy
	if j.Unjailed {
		s = s.Allow(without...)
		p.Read, p.Write = nil, nil // the host's paths stay as they are
	}
	s.Args = []string{"true"} // the caller sets the program
	s, err := p.Apply(s, j.cfg.Where)
	if err != nil {
		return s, verdict.Failed(jobs.SandboxMissing, "apply the worker's policy", err)
	}
	if watchesDisk {
		s.Limits.Disk = cmp.Or(s.Limits.Disk, j.cfg.DiskLimit)
	}
	if j.container() {
		return s, nil // the worker's toolchains are for the host's own system
	}
	return s, j.show(&s, nil, j.cfg.Mounts)
}

// environment is the environment of every program of the attempt, besides its own
// variables. It inherits nothing from the worker.
func (j *Jail) environment() []string {
	vars := map[string]string{
		"PATH": Path,
		"HOME": j.home, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/sh", "TERM": "dumb",
	}
	j.req.Trace.Put(func(name, value string) { vars[strings.ToUpper(name)] = value })
	maps.Copy(vars, j.cfg.Policy.Env)
	maps.Copy(vars, j.req.Job.Env)
	for _, name := range j.req.Job.Secrets {
		if value, ok := j.cfg.Secret(name); ok {
			vars[name] = value
		}
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// showPlan shows the files and mounts of an agent's plan.
func (j *Jail) showPlan(s *sandbox.Spec, plan agent.Plan) error {
	var files []sandbox.File
	for _, f := range plan.Files {
		mode := fs.FileMode(0o644)
		if f.Program {
			mode = 0o755
		}
		files = append(files, sandbox.File{Path: path.Join(j.Files, f.Path), Data: f.Content, Mode: mode})
	}
	var mounts []sandbox.Mount
	for _, p := range plan.Mounts {
		mounts = append(mounts, sandbox.Mount{Source: p, Target: p})
	}
	return j.show(s, files, mounts)
}

// show makes files and directories visible where spec says. Without a jail
// the directories of the host are where they are, and files are written.
func (j *Jail) show(s *sandbox.Spec, files []sandbox.File, mounts []sandbox.Mount) error {
	if !j.Unjailed {
		s.Files, s.Mounts = append(s.Files, files...), append(s.Mounts, mounts...)
		return nil
	}
	for _, f := range files {
		if err := os.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
			return verdict.Failed(jobs.WorkspaceFailed, "hand the agent its input", err)
		}
		if err := os.WriteFile(f.Path, f.Data, 0o600|f.Mode&0o100); err != nil {
			return verdict.Failed(jobs.WorkspaceFailed, "hand the agent its input", err)
		}
	}
	return nil
}

// link shows a program of the host in the jail. Without one it is a link to it.
func (j *Jail) link(s *sandbox.Spec, program, at string) error {
	if !j.Unjailed {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: program, Target: at})
		return nil
	}
	err := os.MkdirAll(path.Dir(at), 0o700)
	if err == nil {
		err = os.Symlink(program, at)
	}
	if errors.Is(err, os.ErrExist) { // of an earlier run of the agent
		err = nil
	}
	return verdict.Failed(jobs.WorkspaceFailed, "show the agent the command penstock", err)
}
