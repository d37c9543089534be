package jails

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Reports is called before a command begins, and returns what reads the reports that the command
// has written; nil: none were asked for. No program is in the workspace during either.
type Reports func(context.Context) (read func(context.Context) *jobs.Tests)

// Run runs the job's setup or check commands, one after the other, until one fails; the
// job then failed for that reason. A command that failed by itself is a [CommandError].
// reports may be nil.
func (s *Set) Run(ctx context.Context, in *confine.Jail, reason jobs.Reason, commands []string, reports Reports) error {
	for _, command := range commands {
		check, err := s.command(ctx, in, command, reports)
		if check.Command != "" { // it ran, however it ended
			s.cfg.Result.Ran(check.Check)
		}
		if err != nil {
			return err
		}
		if check.Exit != 0 {
			return &CommandError{verdict.Ended(reason, "%q ended with status %d", command, check.Exit), check}
		}
	}
	return nil
}

// A CommandError says that a command of the job ran, and failed by itself.
type CommandError struct {
	error
	Ended event.CheckEnded
}

func (e *CommandError) Unwrap() error { return e.error }

// command runs one command in a jail of its own. Its output becomes events.
func (s *Set) command(ctx context.Context, in *confine.Jail, command string, reports Reports) (event.CheckEnded, error) {
	began := time.Now()
	s.cfg.Tell(event.Make(event.CheckStarted{Command: command}))
	start, err := in.Command(command)
	if err != nil {
		return event.CheckEnded{}, err
	}
	var read func(context.Context) *jobs.Tests
	if reports != nil {
		read = reports(ctx)
	}
	out := &tail{}
	p, err := s.Start(ctx, in, start, sandbox.Streams{Stdout: out, Stderr: out})
	if err != nil {
		return event.CheckEnded{}, err
	}
	exit, err := p.Wait()
	check := event.CheckEnded{Check: jobs.Check{Command: command, Exit: exit.Code, Seconds: s.cfg.Took("check", began)}, Output: out.String()}
	if read != nil && err == nil && ctx.Err() == nil {
		check.Tests = read(ctx)
	}
	s.cfg.Tell(event.Make(check))
	limit := in.Reached(strconv.Quote(command), exit)
	s.cfg.Refusals.Limits(strconv.Quote(command), exit)
	if cause := context.Cause(ctx); cause != nil {
		return check, cause
	}
	if check.Exit != 0 && err == nil {
		return check, limit
	}
	return check, verdict.Failed(jobs.SandboxFailed, "run "+strconv.Quote(command), err)
}

// A tail keeps the end of what is written to it: the part of a failing
// command's output that says why.
type tail struct{ kept []byte }

const tailSize = 32 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(bytes.ToValidUTF8(t.kept, []byte("\uFFFD"))) }
