package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"golang.org/x/sys/unix"
)

// startTimeout bounds the time from the first process to the agent's exec:
// 10 ms on an idle machine.
const startTimeout = 30 * time.Second

// Start begins a jail and returns when the program in it is executed. The end
// of ctx stops the jail as [Process.Stop] does. The caller ends with
// [Process.Wait] or [Process.Close].
func Start(ctx context.Context, b Backend, spec Spec, streams Streams) (*Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	enforced, err := b.Check(ctx)
	if err != nil {
		return nil, err
	}
	weaker, err := spec.check(b.Name(), enforced)
	if err != nil {
		return nil, err
	}
	spec = spec.WithDefaults()
	command, err := b.Command(spec)
	if err != nil {
		return nil, err
	}
	p := &Process{
		spec: spec, weaker: weaker, token: newToken(spec.Label),
		stopping: make(chan struct{}), launched: make(chan struct{}), done: make(chan struct{}),
	}
	p.exit.Started = time.Now()
	if err := p.launch(ctx, b.Name(), command, streams); err != nil {
		return nil, err
	}
	return p, nil
}

// launch starts the mechanism and follows it until the agent is executed.
func (p *Process) launch(ctx context.Context, backend string, c *Command, streams Streams) error {
	pipes, err := plumb(streams)
	if err != nil {
		return &StartError{Backend: backend, Step: "start", Err: err}
	}
	p.stdin = pipes.stdin
	ends, err := openEnds(c)
	if err != nil {
		pipes.closeInside()
		pipes.closeOutside()
		return &StartError{Backend: backend, Step: "start", Err: err}
	}
	group, err := cgroup.New(p.token, groupLimits(p.spec.Limits))
	if err != nil {
		pipes.closeInside()
		pipes.closeOutside()
		ends.close()
		return &StartError{Backend: backend, Step: "limits", Err: err}
	}
	p.jail = jail{command: c, token: p.token, group: group, first: -1, agent: -1, control: ends.control}
	begun := make(chan error, 1)
	go p.carry(ctx, pipes, ends, begun)
	if err := <-begun; err != nil {
		<-p.done
		return &StartError{Backend: backend, Step: "start", Err: err}
	}
	if err := p.handshake(ctx, ends); err != nil {
		// Nobody copies yet: the pipe still holds what the mechanism said.
		p.killOnce.Do(p.jail.kill)
		explained := pipes.explanation()
		pipes.closeOutside()
		close(p.launched)
		<-p.done
		return p.startError(ctx, backend, explained, err)
	}
	pipes.start()
	close(p.launched)
	release := context.AfterFunc(ctx, func() { _ = p.Stop(context.WithoutCancel(ctx)) })
	go func() { // ends with the jail
		<-p.done
		release()
	}()
	return nil
}

// carry is the life of the mechanism's first process. It keeps its thread to
// the end: the kernel takes the end of the thread that started a process for
// the end of its parent, and would kill the jail.
func (p *Process) carry(ctx context.Context, pipes *plumbing, ends *ends, begun chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	cmd := p.jail.prepare(pipes, ends)
	clean, err := p.jail.group.Start(cmd)
	pipes.closeInside()
	ends.closeInside()
	if err == nil {
		p.jail.setMain(cmd.Process)
	}
	if clean {
		// A thread that could not leave the jail's control group must not
		// be used for anything else: it dies with this goroutine.
		defer runtime.UnlockOSThread()
	}
	begun <- err
	if err != nil {
		ends.close()
		pipes.closeOutside()
		p.err = p.jail.group.Remove()
		return
	}
	_ = cmd.Wait() // how it ended is in ProcessState
	p.jail.end()
	<-p.launched // a short program can be over before Start has returned
	ends.close()
	var expired <-chan time.Time
	if p.jail.command.Sweep {
		expired = time.After(5 * time.Second)
	}
	p.finish(ctx, cmd, pipes.finish(expired))
}

// finish records how the jail ended. Nothing of it is alive.
func (p *Process) finish(ctx context.Context, cmd *exec.Cmd, output error) {
	for _, l := range p.listeners {
		l.Close()
	}
	p.exit.Ended = time.Now()
	p.exit.Code = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Code = 128 + int(ws.Signal())
	}
	if c := p.exit.Code; c > 128 && c <= 128+64 {
		p.exit.Signal = syscall.Signal(c - 128)
	}
	p.exit.Stopped = p.stopped()
	for _, r := range p.jail.group.Reached() {
		p.exit.Reached = append(p.exit.Reached, Feature(r))
	}
	if p.exit.Signal == syscall.SIGXFSZ {
		p.exit.Reached = append(p.exit.Reached, FeatureFileSize)
	}
	p.err = errors.Join(output, p.jail.group.Remove())
	if p.exit.Stopped && ctx.Err() != nil {
		p.err = errors.Join(context.Cause(ctx), p.err)
	}
}

func (p *Process) startError(ctx context.Context, backend, explained string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if e, ok := errors.AsType[*StartError](err); ok {
		e.Backend = backend
		return e
	}
	return &StartError{Backend: backend, Step: "set up", Detail: explained, Err: err}
}

// handshake reads the mechanism's status and what jailinit says.
func (p *Process) handshake(ctx context.Context, ends *ends) error {
	deadline := time.Now().Add(startTimeout)
	interrupt := func() {
		ends.status.SetReadDeadline(time.Unix(1, 0))
		ends.control.SetReadDeadline(time.Unix(1, 0))
	}
	ends.status.SetReadDeadline(deadline)
	ends.control.SetReadDeadline(deadline)
	defer context.AfterFunc(ctx, interrupt)()
	if p.jail.command.Status {
		var status struct {
			PID int `json:"child-pid"`
		}
		if err := json.NewDecoder(ends.status).Decode(&status); err != nil || status.PID <= 0 {
			return errors.New("the jail was not made")
		}
		p.jail.setFirst(status.PID)
	}
	if !p.jail.command.Control {
		return nil
	}
	hello, err := receive(ends.control)
	if err != nil {
		return err
	}
	p.jail.setAgent(hello.agent)
	for i, f := range hello.sockets {
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			for _, f := range hello.sockets[i+1:] {
				f.Close()
			}
			return fmt.Errorf("listener %d: %w", i, err)
		}
		p.listeners = append(p.listeners, l)
	}
	if len(p.listeners) != len(p.spec.Listen) {
		return fmt.Errorf("%d listeners came out instead of %d", len(p.listeners), len(p.spec.Listen))
	}
	return nil
}

// ends are the descriptors that go in besides the standard streams, and
// their other sides.
type ends struct {
	inside  []*os.File
	status  *os.File
	control *net.UnixConn
}

func openEnds(c *Command) (_ *ends, err error) {
	e := &ends{}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	status, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	e.status, e.inside = status, append(e.inside, w)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	e.inside = append(e.inside, os.NewFile(uintptr(pair[1]), "control"))
	outer := os.NewFile(uintptr(pair[0]), "control")
	defer outer.Close()
	// The kernel then adds the sender's process number as seen from here.
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(outer)
	if err != nil {
		return nil, err
	}
	e.control = conn.(*net.UnixConn)
	for _, b := range c.Data {
		f, err := memory(b)
		if err != nil {
			return nil, err
		}
		e.inside = append(e.inside, f)
	}
	return e, nil
}

// memory returns a file that exists in memory only, at its beginning. Pipes
// would block on contents larger than their buffer.
func memory(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("penstock", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "data")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (e *ends) closeInside() {
	for _, f := range e.inside {
		f.Close()
	}
	e.inside = nil
}

func (e *ends) close() {
	e.closeInside()
	if e.status != nil {
		e.status.Close()
	}
	if e.control != nil {
		e.control.Close()
	}
}
