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
	"slices"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/internal/thread"
	"golang.org/x/sys/unix"
)

// Start begins a jail and returns when the program in it is executed. The end
// of ctx stops the jail as [Process.Stop] does. The caller ends with
// [Process.Wait] or [Process.Close].
func Start(ctx context.Context, b Backend, spec Spec, streams Streams) (*Process, error) {
	command, weaker, err := spec.Plan(ctx, b)
	if err != nil {
		return nil, err
	}
	spec = spec.WithDefaults()
	watch, err := newWatch(spec, func(word string) bool {
		// A service that owns the jail limits it too.
		return command.Rendezvous || slices.Contains(weaker, Feature(word)) || cgroup.Can(word)
	})
	if err != nil {
		return nil, &StartError{Backend: b.Name(), Step: "limits", Err: err}
	}
	p := &Process{
		spec: spec, weaker: weaker, watch: watch, token: newToken(spec.Label),
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
	if c.Status {
		if err := needReaper(); err != nil {
			return &StartError{Backend: backend, Step: "reaper", Err: err}
		}
	}
	pipes, ends, step, err := p.furnish(c, streams)
	if err != nil {
		return &StartError{Backend: backend, Step: step, Err: err}
	}
	p.jail.beginCover()
	defer p.jail.endCover()
	begun := make(chan error, 1)
	go thread.Alone(func() { p.runMain(ctx, pipes, ends, begun) })
	if err := <-begun; err != nil {
		<-p.done
		return &StartError{Backend: backend, Step: "start", Err: errors.Join(err, p.err)}
	}
	if p.jail.service != nil {
		go p.jail.oversee(ctx, pipes) // ends with the client
	}
	err = p.handshake(ctx, ends)
	if p.jail.listens() {
		go p.jail.attend() // ends with the control socket
	}
	if err != nil {
		// The output is not copied yet: the pipe still holds what the mechanism said.
		p.killOnce.Do(p.jail.kill)
		explained := pipes.explanation(c)
		pipes.closeOutside()
		close(p.launched)
		<-p.done
		return p.startError(ctx, backend, explained, err)
	}
	pipes.start()
	p.watch.start(&p.jail, func() { p.killOnce.Do(p.jail.kill) })
	p.release = p.stopWith(ctx)
	close(p.launched)
	return nil
}

// furnish opens what goes into the jail and what stays around it. The step is
// the one that failed.
func (p *Process) furnish(c *Command, streams Streams) (pipes *plumbing, e *ends, step string, err error) {
	defer func() {
		if err == nil {
			return
		}
		if pipes != nil {
			pipes.closeInside()
			pipes.closeOutside()
		}
		if e != nil {
			e.close()
		}
	}()
	if pipes, err = plumb(streams); err != nil {
		return nil, nil, "start", err
	}
	pipes.limit = newThrottle(p.spec.Limits.OutputRate)
	p.stdin = pipes.stdin
	if e, err = openEnds(c); err != nil {
		return pipes, nil, "start", err
	}
	p.jail = jail{
		command: c, token: p.token, first: -1, agent: -1,
		control: e.control, silent: make(chan struct{}),
	}
	step, err = p.jail.surround(p.spec.Limits)
	return pipes, e, step, err
}

// runMain runs the mechanism's first process to its end. It keeps its thread to
// the end: the kernel takes the end of the thread that started a process for
// the end of its parent, and would kill the jail.
func (p *Process) runMain(ctx context.Context, pipes *plumbing, ends *ends, begun chan<- error) {
	defer close(p.done)
	cmd := p.jail.prepare(pipes, ends)
	clean, err := p.begin(cmd)
	pipes.closeInside()
	if p.jail.service == nil {
		ends.closeInside()
	}
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
		p.err = errors.Join(p.jail.remove(), p.removeWork())
		return
	}
	_ = cmd.Wait() // how it ended is in ProcessState
	if s := p.jail.service; s != nil {
		close(s.clientGone)
		<-p.launched // the process inside is known by then
		<-s.overseen
	}
	err = p.jail.end(ctx)
	<-p.launched // a short program can be over before Start has returned
	if p.jail.listens() {
		within(ownEnd, p.jail.silent, nil)
	}
	ends.close()
	output := pipes.finish(p.jail.command.Sweep || p.jail.service != nil)
	if pipes.limit.reached() {
		p.exit.Reached = append(p.exit.Reached, FeatureOutput)
	}
	p.finish(ctx, cmd, errors.Join(err, output))
}

// finish records how the jail ended. Nothing of it is alive.
func (p *Process) finish(ctx context.Context, cmd *exec.Cmd, output error) {
	if p.release != nil {
		p.release()
	}
	p.closePorts()
	p.exit.Ended = time.Now()
	p.exit.Stopped = p.stopped()
	p.exit.Code, p.exit.Signal = p.jail.code(cmd.ProcessState, p.exit.Stopped)
	for _, r := range p.jail.group.Reached() {
		p.exit.Reached = append(p.exit.Reached, Feature(r))
	}
	p.exit.Reached = append(p.exit.Reached, p.jail.reached()...)
	if p.exit.Signal == syscall.SIGXFSZ {
		p.exit.Reached = append(p.exit.Reached, FeatureFileSize)
	}
	watched, unkept := p.watch.end(cmd.ProcessState)
	p.exit.Reached = append(p.exit.Reached, watched...)
	p.err = errors.Join(output, unkept, p.jail.remove(), p.removeWork())
	if p.exit.Stopped && ctx.Err() != nil {
		p.err = errors.Join(context.Cause(ctx), p.err)
	}
}

// startError says why there is no jail, and what of it could not be removed.
func (p *Process) startError(ctx context.Context, backend, explained string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if e, ok := errors.AsType[*StartError](err); ok {
		e.Backend, e.Err = backend, errors.Join(e.Err, p.err)
		return e
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the program inside was not executed in %v", p.jail.command.startTimeout())
	}
	return &StartError{Backend: backend, Step: "set up", Detail: explained, Err: errors.Join(err, p.err)}
}

// handshake reads the mechanism's status and what jailinit says.
func (p *Process) handshake(ctx context.Context, ends *ends) error {
	deadline := time.Now().Add(p.jail.command.startTimeout())
	p.jail.setDeadline(deadline, ends)
	defer context.AfterFunc(ctx, func() { p.jail.setDeadline(time.Unix(1, 0), ends) })()
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
	if err := p.jail.hand(deadline, ends); err != nil {
		return err
	}
	hello, err := p.receive(ends.control)
	if err != nil {
		return err
	}
	p.jail.meets(hello)
	return p.adopt(hello.sockets)
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
