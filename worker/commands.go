package worker

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

// commands runs the job's setup or check commands, one after the other, until
// one fails.
func (a *attempt) commands(ctx context.Context, in confine.Jail, reason jobs.Reason, commands []string) error {
	for _, command := range commands {
		check, err := a.command(ctx, in, command)
		if check.Command != "" { // it ran, however it ended
			a.out.Result.Ran(check.Check)
		}
		if err != nil {
			return err
		}
		if check.Exit != 0 {
			return &commandError{verdict.Ended(reason, "%q ended with status %d", command, check.Exit), check}
		}
	}
	return nil
}

// A commandError says that a command of the job ran, and failed by itself.
type commandError struct {
	error
	check event.CheckEnded
}

func (e *commandError) Unwrap() error { return e.error }

// command runs one command in a jail of its own. Its output becomes events.
func (a *attempt) command(ctx context.Context, in confine.Jail, command string) (event.CheckEnded, error) {
	began := time.Now()
	a.events.Put(event.Make(event.CheckStarted{Command: command}))
	start, err := in.Command(command)
	if err != nil {
		return event.CheckEnded{}, err
	}
	out := &tail{}
	p, err := a.start(ctx, in, start, sandbox.Streams{Stdout: out, Stderr: out})
	if err != nil {
		return event.CheckEnded{}, err
	}
	exit, err := p.Wait()
	check := event.CheckEnded{Check: jobs.Check{Command: command, Exit: exit.Code, Seconds: a.took("check", began)}, Output: out.String()}
	a.events.Put(event.Make(check))
	limit := in.Reached(strconv.Quote(command), exit)
	noteLimits(a.refused, strconv.Quote(command), exit)
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
