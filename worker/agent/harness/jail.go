package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
)

// RealKey is the key of the model API, which only the gate has. JailKey is the key in the jail.
const (
	RealKey = "sk-real-key-that-must-stay-outside"
	JailKey = "penstock-key-of-the-jail"
)

// Gated is an agent's way to the model: a gate, and the session that it serves. The zero
// value is no way at all.
type Gated struct {
	Gate    *gate.Gate
	Session *gate.Session
}

// A Jail is the place in which agents run.
type Jail struct {
	Backend sandbox.Backend
	// Spec is what all runs see besides the agent's own: programs, and variables. Its
	// label says to which pool the jails belong. The zero value sees the system's
	// directories and no variable.
	Spec  sandbox.Spec
	Limit time.Duration // of one run
}

// A LimitError reports a run that had not ended by itself in time.
type LimitError struct{ Limit time.Duration }

func (e *LimitError) Error() string { return fmt.Sprintf("it had not ended after %v", e.Limit) }

// address is where the gate is in the jail.
const address = "127.0.0.1:3128"

// Inside is a launch as an agent in a jail has it.
func Inside(l agent.Launch, gated bool) agent.Launch {
	l.Cwd, l.Files, l.Key = sandbox.WorkspacePath, "/run/penstock", JailKey
	if gated {
		l.Gate = "http://" + address
	}
	return l
}

// Run runs an agent as a worker does: in a strict jail, whose only way out is the gate to the
// model. The launch names the directory of the host that is the workspace. A run that does
// not end in time gives a [*LimitError], and what was seen until then.
func (j Jail) Run(ctx context.Context, adapter agent.Adapter, l agent.Launch, way Gated, c *Conversation) (Run, error) {
	workspace := l.Cwd
	l = Inside(l, way.Gate != nil)
	p, err := adapter.Launch(l)
	if err != nil {
		return Run{}, err
	}
	spec := j.spec(p, l.Files)
	spec.Workspace, spec.Home = workspace, c.Home
	for _, name := range slices.Sorted(maps.Keys(l.Job.Env)) {
		spec.Env = append(spec.Env, name+"="+l.Job.Env[name])
	}
	if way.Gate != nil {
		spec.Network, spec.Listen = sandbox.NetworkGate, []string{address}
	}
	limited, cancel := context.WithTimeoutCause(ctx, j.Limit, &LimitError{j.Limit})
	defer cancel()
	aborted, abort := context.WithCancel(limited)
	defer abort()
	return c.Hold(adapter.Decoder(l), p, func(stdout, stderr io.Writer) (Process, error) {
		proc, err := sandbox.Start(limited, j.Backend, spec, sandbox.Streams{StdinPipe: true, Stdout: stdout, Stderr: stderr})
		if err != nil {
			return Process{}, err
		}
		var ending sync.WaitGroup
		var serving error
		ending.Go(func() {
			<-aborted.Done()
			_ = proc.Close(context.WithoutCancel(ctx)) // Wait reports it
		})
		if way.Gate != nil {
			ending.Go(func() { serving = way.Gate.Serve(limited, way.Session, proc.Listeners()[0]) })
		}
		return Process{
			Stdin: proc.Stdin(),
			Abort: abort,
			Wait: func() (int, string, error) {
				exit, err := proc.Wait()
				cancelled := context.Cause(limited) // before we end the gate
				cancel()
				ending.Wait()
				signal := ""
				if exit.Signal != 0 {
					signal = exit.Signal.String()
				}
				return exit.Code, signal, errors.Join(err, cancelled, serving)
			},
		}, nil
	})
}

// Output is what the program of a plan prints that needs neither a workspace nor a model. One that
// does not end in time gives a [*LimitError].
func (j Jail) Output(ctx context.Context, p agent.Plan) ([]byte, sandbox.Exit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.Limit, &LimitError{j.Limit})
	defer cancel()
	out, exit, err := sandbox.Output(ctx, j.Backend, j.spec(p, ""))
	return out, exit, errors.Join(err, context.Cause(ctx))
}

// spec is what the program of a plan may touch, besides its workspace and its home.
func (j Jail) spec(p agent.Plan, files string) sandbox.Spec {
	spec := j.Spec
	spec.Args = p.Args
	spec.Env = slices.Concat(p.Env, []string{"HOME=" + sandbox.HomePath, "TMPDIR=/tmp", "LANG=C.UTF-8"}, j.Spec.Env)
	spec.Mounts = slices.Clone(j.Spec.Mounts)
	for _, m := range p.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m, Target: m})
	}
	spec.Files = slices.Clone(j.Spec.Files)
	for _, f := range p.Files {
		file := sandbox.File{Path: filepath.Join(files, f.Path), Data: f.Content}
		if f.Program {
			file.Mode = 0o755
		}
		spec.Files = append(spec.Files, file)
	}
	return spec
}
