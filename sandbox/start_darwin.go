package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
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
	if command.Control || command.Status || len(command.End) > 0 {
		return nil, &StartError{Backend: b.Name(), Step: "start", Detail: "its mechanism does not exist on macOS"}
	}
	p := &Process{
		spec: spec.WithDefaults(), weaker: weaker, token: fmt.Sprintf("%s_%d-%d", spec.Label, os.Getpid(), jails.Add(1)),
		stopping: make(chan struct{}), launched: make(chan struct{}), done: make(chan struct{}),
	}
	p.exit.Started = time.Now()
	if err := p.launch(ctx, command, streams); err != nil {
		return nil, &StartError{Backend: b.Name(), Step: "start", Err: err}
	}
	return p, nil
}

var jails atomic.Int64

func (p *Process) launch(ctx context.Context, c *Command, streams Streams) (err error) {
	pipes, err := plumb(streams)
	if err != nil {
		return err
	}
	p.stdin = pipes.stdin
	defer func() {
		pipes.closeInside()
		if err != nil {
			pipes.closeOutside()
			p.closeListeners()
			err = errors.Join(err, p.jail.remove())
		}
	}()
	if err := p.jail.makePrivate(); err != nil {
		return err
	}
	// The jail shares the host's loopback, so they are opened there.
	for _, address := range p.spec.Listen {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		p.listeners = append(p.listeners, l)
	}
	cmd := p.jail.prepare(c, pipes)
	if err := cmd.Start(); err != nil {
		return err
	}
	p.jail.leader = cmd.Process.Pid
	pipes.start()
	p.release = p.stopWith(ctx)
	close(p.launched)
	go func() { // ends with the jail
		defer close(p.done)
		_ = cmd.Wait() // how it ended is in ProcessState
		p.jail.end()
		p.release()
		p.finish(ctx, cmd.ProcessState, pipes.finish(true))
	}()
	return nil
}

// finish records how the jail ended.
func (p *Process) finish(ctx context.Context, state *os.ProcessState, output error) {
	p.closeListeners()
	p.exit.Ended = time.Now()
	p.exit.Stopped = p.stopped()
	p.exit.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Code = 128 + int(ws.Signal())
	}
	if c := p.exit.Code; c > 128 && c <= 128+64 {
		p.exit.Signal = syscall.Signal(c - 128)
	}
	p.err = errors.Join(output, p.jail.remove())
	if p.exit.Stopped && ctx.Err() != nil {
		p.err = errors.Join(context.Cause(ctx), p.err)
	}
}

func (p *Process) closeListeners() {
	for _, l := range p.listeners {
		l.Close()
	}
}

// prepare makes the command of the mechanism's process.
func (j *jail) prepare(c *Command, pipes *plumbing) *exec.Cmd {
	complete := func(list []string) []string {
		out := []string{} // nil would mean our own environment
		for _, s := range list {
			out = append(out, strings.ReplaceAll(s, Meet, j.private))
		}
		return out
	}
	dir := c.Dir
	if dir == "" {
		dir = "/"
	}
	return &exec.Cmd{
		Path: c.Path, Args: complete(c.Args), Env: complete(c.Env), Dir: dir,
		Stdin: pipes.inside[0], Stdout: pipes.inside[1], Stderr: pipes.inside[2],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// makePrivate makes the directory for temporary files, and for a workspace
// and home that the Spec does not name.
func (j *jail) makePrivate() error {
	dir, err := os.MkdirTemp("", "penstock-jail-")
	if err != nil {
		return err
	}
	j.made = dir
	j.private, err = filepath.EvalSymlinks(dir)
	return err
}

// remove takes the private directory away, whatever modes the jail gave to
// what is in it.
func (j *jail) remove() error {
	if j.made == "" {
		return nil
	}
	err := os.RemoveAll(j.made)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(j.private, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700) // before its entries are read
		}
		return nil
	})
	return os.RemoveAll(j.made)
}
