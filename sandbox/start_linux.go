package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	held "github.com/penstock-run/penstock/sandbox/internal/jail"
	"github.com/penstock-run/penstock/sandbox/internal/stdio"
	"github.com/penstock-run/penstock/sandbox/internal/thread"
	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/internal/watch"
	"github.com/penstock-run/penstock/sandbox/mechanism"
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
	_, served := command.Jail.(mechanism.Served)
	config := watched(spec, func(word string) bool {
		// A service that holds the jail limits it too.
		return served || slices.Contains(weaker, Feature(word)) || cgroup.Can(word)
	})
	watch, err := watch.New(config)
	if err != nil {
		return nil, &StartError{Backend: b.Name(), Step: "limits", Err: err}
	}
	p := &Process{
		spec: spec, root: command.onceRoot(), weaker: weaker, watched: features(config), token: token.New(spec.Label),
		stopping: make(chan struct{}), launched: make(chan struct{}), done: make(chan struct{}),
	}
	p.exit.Started = time.Now()
	l := &launch{p: p, backend: b.Name(), command: command, watch: watch}
	if err := l.run(ctx, streams); err != nil {
		return nil, err
	}
	return p, nil
}

// A launch starts a Process and follows it to its end.
type launch struct {
	p       *Process
	backend string
	command *Command
	watch   *watch.Watch
	pipes   *stdio.Pipes
	release func() bool // ends the wait for the end of the context; set before p.launched is closed, nil without a jail
}

// run starts the mechanism and follows it until the agent is executed.
func (l *launch) run(ctx context.Context, streams Streams) (err error) {
	p := l.p
	if l.pipes, err = stdio.Plumb(stdio.Streams(streams), p.spec.Limits.OutputRate); err != nil {
		return &StartError{Backend: l.backend, Step: "start", Err: err}
	}
	p.stdin = l.pipes.Stdin
	var step string
	if p.jail, step, err = held.New(l.command.Jail, l.config()); err != nil {
		l.pipes.CloseInside()
		l.pipes.CloseOutside()
		return &StartError{Backend: l.backend, Step: step, Err: err}
	}
	begun := make(chan error, 1)
	go thread.Alone(func() { l.runMain(ctx, begun) })
	if err := <-begun; err != nil {
		<-p.done
		return &StartError{Backend: l.backend, Step: "start", Err: errors.Join(err, p.err)}
	}
	if err := l.meet(ctx); err != nil {
		// The output is not copied yet: the pipe still holds what the mechanism said.
		p.kill()
		explained := l.command.explain(l.pipes.Said())
		l.pipes.CloseOutside()
		close(p.launched)
		<-p.done
		return l.failed(ctx, explained, err)
	}
	l.pipes.Start()
	l.watch.Start(p.jail.Processes, p.kill)
	l.release = p.stopWith(ctx)
	close(p.launched)
	return nil
}

func (l *launch) config() held.Config {
	spec := l.p.spec
	return held.Config{
		Token: l.p.token, Env: l.command.env(), Bind: spec.bind, Unread: l.pipes.Unread,
		Limits: cgroup.Limits{Memory: spec.Limits.Memory, CPUs: spec.Limits.CPUs, CPUWeight: spec.Limits.CPUWeight, PIDs: spec.Limits.PIDs},
		Layers: held.Layers{Lower: spec.Lower, Workspace: spec.Workspace, ReadOnly: spec.WorkspaceReadOnly, Upper: spec.UpperSource()},
	}
}

// meet waits until the agent is executed, and takes what leads into the jail.
func (l *launch) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.command.startTimeout())
	defer cancel()
	sockets, err := l.p.jail.Meet(ctx)
	if err != nil {
		return err
	}
	if l.command.Jail == nil {
		return nil // nothing leads into what is no jail
	}
	return l.p.ports.adopt(l.p.spec, sockets)
}

// env is what the program finds; nil would mean our own.
func (c *Command) env() []string {
	if c.Env == nil {
		return []string{}
	}
	return c.Env
}

func (c *Command) startTimeout() time.Duration { return cmp.Or(c.StartTimeout, 30*time.Second) }

// program returns the command of the mechanism's program.
func (l *launch) program() *exec.Cmd {
	c, inside := l.command, l.pipes.Inside
	cmd := &exec.Cmd{
		Path: c.Path, Args: c.Args, Env: c.env(), Dir: cmp.Or(c.Dir, "/"),
		Stdin: inside[0], Stdout: inside[1], Stderr: inside[2],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if groups, err := os.Getgroups(); os.Geteuid() == 0 && (err != nil || len(groups) > 0) {
		// Supplementary groups would still open doors of the host's files.
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: uint32(os.Getegid())}
	}
	return cmd
}

// runMain runs the mechanism's program to its end. It keeps its thread to
// the end: the kernel takes the end of the thread that started a process for
// the end of its parent, and would kill the jail.
func (l *launch) runMain(ctx context.Context, begun chan<- error) {
	p := l.p
	defer close(p.done)
	cmd := l.program()
	clean, err := p.jail.Begin(cmd)
	l.pipes.CloseInside()
	if clean {
		// A thread that could not leave the jail's control group must not
		// be used for anything else: it dies with this goroutine.
		defer runtime.UnlockOSThread()
	}
	begun <- err
	if err != nil {
		l.pipes.CloseOutside()
		p.err = p.jail.Remove()
		return
	}
	_ = cmd.Wait() // how it ended is in ProcessState
	p.ending.Store(true)
	sealed, err := p.jail.End()
	<-p.launched // a short program can be over before Start has returned
	l.finish(ctx, cmd.ProcessState, errors.Join(err, l.pipes.Finish(!sealed)))
}

// finish records how the jail ended. Nothing of it is alive.
func (l *launch) finish(ctx context.Context, program *os.ProcessState, output error) {
	p := l.p
	if l.release != nil {
		l.release()
	}
	p.ports.close()
	p.exit.Ended = time.Now()
	p.exit.Stopped = p.stopped()
	report := p.jail.Report(program, p.exit.Stopped)
	p.exit.Code, p.exit.Signal = report.Code, report.Signal
	watched, unkept := l.watch.End(program)
	p.exit.Reached = l.reached(report, watched)
	p.err = errors.Join(output, unkept, p.jail.Remove())
	if p.exit.Stopped && ctx.Err() != nil {
		p.err = errors.Join(context.Cause(ctx), p.err)
	}
}

// reached lists the limits that the jail ran into, whoever has kept them.
func (l *launch) reached(report held.Report, watched []string) (all []Feature) {
	if l.pipes.Slowed() {
		all = append(all, FeatureOutput)
	}
	for _, word := range report.Reached {
		all = append(all, Feature(word))
	}
	if report.Signal == syscall.SIGXFSZ {
		all = append(all, FeatureFileSize)
	}
	for _, word := range watched {
		all = append(all, Feature(word))
	}
	return all
}

// failed says why there is no jail, and what of it could not be removed.
func (l *launch) failed(ctx context.Context, explained string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	left := l.p.err
	if e, ok := errors.AsType[*held.StepError](err); ok {
		return &StartError{Backend: l.backend, Step: e.Step, Detail: e.Detail, Err: errors.Join(e.Err, left)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the program inside was not executed in %v", l.command.startTimeout())
	}
	return &StartError{Backend: l.backend, Step: "set up", Detail: explained, Err: errors.Join(err, left)}
}

// explain shortens what the program said before it ended without a jail: to its last
// line without the program's name, or to a bounded text of a service's client.
func (c *Command) explain(said string) string {
	if _, served := c.Jail.(mechanism.Served); served {
		lines := strings.FieldsFunc(said, func(c rune) bool { return c == '\n' || c == '\r' })
		s := strings.Join(lines, "; ")
		return strings.ToValidUTF8(s[max(0, len(s)-1024):], "")
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), c.name()+": ")
}

// jail is what a mechanism holds.
type jail = held.Jail

func halted(j jail) int {
	top, _ := j.Processes()
	return held.Halted(top)
}

func activity(j jail) (cpu time.Duration, io int64) {
	top, _ := j.Processes()
	return held.Activity(top)
}
