package worker

import (
	"errors"
	"net"
	"os"
	"path"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// enter returns what the attempt's programs share. Where somebody asked for
// no jail, nothing can be shown inside, so it gets a directory of the host
// for that, which goes with the workspace; so does an agent that resumes its
// conversation, for its home.
func (a *attempt) enter(backend sandbox.Backend, space *workspace.Workspace, resumes bool) (jail, error) {
	in := jail{backend: backend, space: space, cwd: sandbox.WorkspacePath, home: sandbox.HomePath, input: inputDir, gate: gateAddress}
	in.unjailed = backend.Name() == "none"
	if !in.unjailed && !resumes {
		return in, nil
	}
	beside, err := space.Beside()
	if err != nil {
		return jail{}, verdict.Failed(jobs.WorkspaceFailed, "make a directory for the agent's input", err)
	}
	home := path.Join(beside, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return jail{}, verdict.Failed(jobs.WorkspaceFailed, "make the agent's home", err)
	}
	if !in.unjailed {
		in.kept = home
		return in, nil
	}
	in.cwd, in.home, in.input = space.Dir(), home, path.Join(beside, "job")
	in.gate, err = freeAddress()
	return in, verdict.Failed(jobs.WorkspaceFailed, "find a port for the way to the model API", err)
}

// without is what a job goes without where the backend none was asked for, by
// the job or by whoever runs the worker: it is never chosen otherwise. The
// result lists it. Limits that a job sets must be enforced all the same.
var without = []sandbox.Feature{
	sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
	sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureTemporary,
}

// freeAddress is one on the host's own loopback, which all programs without a
// jail share. Somebody may take it before the agent's start opens it; then the
// start fails, and the job is tried again.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// link shows a program of the host in the jail. Without one it is a link to it.
func (in jail) link(s *sandbox.Spec, program, at string) error {
	if !in.unjailed {
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

// show makes files and directories visible where spec says. Without a jail
// the directories of the host are where they are, and files are written.
func (in jail) show(s *sandbox.Spec, files []sandbox.File, mounts []sandbox.Mount) error {
	if !in.unjailed {
		s.Files, s.Mounts = append(s.Files, files...), append(s.Mounts, mounts...)
		return nil
	}
	for _, f := range files {
		if err := os.MkdirAll(path.Dir(f.Path), 0o700); err != nil {
			return verdict.Failed(jobs.WorkspaceFailed, "hand the agent its input", err)
		}
		if err := os.WriteFile(f.Path, f.Data, 0o600); err != nil {
			return verdict.Failed(jobs.WorkspaceFailed, "hand the agent its input", err)
		}
	}
	return nil
}
