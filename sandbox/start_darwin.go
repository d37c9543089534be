package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	held "github.com/penstock-run/penstock/sandbox/internal/jail"
	"github.com/penstock-run/penstock/sandbox/internal/stdio"
)

// Start begins a jail and returns when the mechanism is executed: a program
// that cannot be is in the exit, as a shell would say it. The end of ctx stops
// the jail as [Process.Stop] does. The caller ends with [Process.Wait] or
// [Process.Close].
func Start(ctx context.Context, b Backend, spec Spec, streams Streams) (*Process, error) {
	command, weaker, err := spec.Plan(ctx, b)
	if err != nil {
		return nil, err
	}
	if command.Jail != nil {
		return nil, &StartError{Backend: b.Name(), Step: "start", Detail: "its mechanism does not exist on macOS"}
	}
	p := &Process{
		spec: spec.WithDefaults(), root: command.onceRoot(), weaker: weaker, token: fmt.Sprintf("%s_%d-%d", spec.Label, os.Getpid(), jails.Add(1)),
		jail: &held.Session{}, stopping: make(chan struct{}), launched: make(chan struct{}), done: make(chan struct{}),
	}
	p.exit.Started = time.Now()
	if err := p.launch(ctx, command, streams); err != nil {
		return nil, &StartError{Backend: b.Name(), Step: "start", Err: err}
	}
	return p, nil
}

var jails atomic.Int64

func (p *Process) launch(ctx context.Context, c *Command, streams Streams) (err error) {
	pipes, err := stdio.Plumb(stdio.Streams(streams), 0)
	if err != nil {
		return err
	}
	p.stdin = pipes.Stdin
	defer func() {
		pipes.CloseInside()
		if err != nil {
			pipes.CloseOutside()
			p.ports.close()
			err = errors.Join(err, p.jail.Remove())
		}
	}()
	if err := p.jail.MakePrivate(); err != nil {
		return err
	}
	// The jail shares the host's loopback, so they are opened there.
	for _, address := range p.spec.Listen {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		p.ports.listeners = append(p.ports.listeners, l)
	}
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Env: c.Env, Dir: cmp.Or(c.Dir, "/"),
		Stdin: pipes.Inside[0], Stdout: pipes.Inside[1], Stderr: pipes.Inside[2],
	}
	if err := p.jail.Begin(cmd, Private); err != nil {
		return err
	}
	pipes.Start()
	release := p.stopWith(ctx)
	close(p.launched)
	go func() { // ends with the jail
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in ProcessState
		p.jail.End()
		release()
		p.finish(ctx, cmd.ProcessState, pipes.Finish(true))
	}()
	return nil
}

// finish records how the jail ended.
func (p *Process) finish(ctx context.Context, state *os.ProcessState, output error) {
	p.ports.close()
	p.exit.Ended = time.Now()
	p.exit.Stopped = p.stopped()
	p.exit.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Code = 128 + int(ws.Signal())
	}
	if c := p.exit.Code; c > 128 && c <= 128+64 {
		p.exit.Signal = syscall.Signal(c - 128)
	}
	p.err = errors.Join(output, p.jail.Remove())
	if p.exit.Stopped && ctx.Err() != nil {
		p.err = errors.Join(context.Cause(ctx), p.err)
	}
}

// jail is what is known of a Process.
type jail = *held.Session

func halted(j jail) int { return j.Halted() }
