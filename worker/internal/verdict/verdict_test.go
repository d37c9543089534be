package verdict

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/workspace"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		cause   error
		err     error
		outcome jobs.Outcome
		reason  jobs.Reason
	}{
		{"nothing went wrong", nil, nil, jobs.Success, ""},
		{"the agent's own verdict", nil, Ended(jobs.AgentFailed, "no"), jobs.Failure, jobs.AgentFailed},
		{"a lost lease beats what the killed agent says", jobs.ErrFenced, Ended(jobs.AgentCrashed, "killed"), jobs.Error, jobs.LeaseLost},
		{"so does a drain", jobs.ErrDraining, errors.New("broken pipe"), jobs.Error, jobs.WorkerDrained},
		{"and a cancel", jobs.ErrCancelled, nil, jobs.Cancellation, jobs.Cancelled},
		{"a limit of time, from inside", nil, ErrTimeLimit, jobs.TimedOut, jobs.TimeLimit},
		{"an unknown agent", nil, &agent.UnknownAgentError{Name: "x"}, jobs.Error, jobs.UnknownAgent},
		{"a missing program", nil, fmt.Errorf("launch: %w", &agent.MissingError{Agent: "claude"}), jobs.Error, jobs.AgentMissing},
		{"a wrong ref", nil, Failed(jobs.WorkspaceFailed, "prepare", &workspace.RefError{}), jobs.Error, jobs.RefNotFound},
		{"an unsupported repository", nil, Failed(jobs.WorkspaceFailed, "prepare", &workspace.RefusedError{Reason: jobs.RepoUnsupported}), jobs.Error, jobs.RepoUnsupported},
		{"an unreachable repository", nil, Failed(jobs.WorkspaceFailed, "prepare", &workspace.UnreachableError{}), jobs.Error, jobs.RepoUnreachable},
		{"a full disk, wherever it was met", nil, Failed(jobs.WorkspaceFailed, "prepare", &fs.PathError{Err: syscall.ENOSPC}), jobs.Error, jobs.DiskFull},
		{"a step that failed", nil, Failed(jobs.StoreFailed, "store", errors.New("no")), jobs.Error, jobs.StoreFailed},
		{"a jail that the host lacks", nil, Failed(StartReason(&sandbox.UnsupportedError{}), "start", errors.New("no")), jobs.Error, jobs.SandboxMissing},
		{"an image that the host lacks", nil, Failed(StartReason(noImage{errors.New("no image")}), "start", errors.New("no")), jobs.Error, jobs.ImageMissing},
		{"a program that the jail lacks", nil, Failed(StartReason(&sandbox.StartError{Step: "execute"}), "start", errors.New("no")), jobs.Error, jobs.AgentMissing},
		{"anything else is ours", nil, errors.New("what?"), jobs.Error, jobs.Internal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(context.Background())
			defer end(nil)
			if tt.cause != nil {
				end(tt.cause)
			}
			got := Of(ctx, tt.err)
			if got.Outcome != tt.outcome || got.Reason != tt.reason {
				t.Errorf("got %s %s (%s), want %s %s", got.Outcome, got.Reason, got.Message, tt.outcome, tt.reason)
			}
			if got.Outcome != jobs.Success && got.Message == "" {
				t.Error("a verdict that is no success says nothing")
			}
		})
	}
}

// noImage is what a backend of containers refuses an image with.
type noImage struct{ error }

func (noImage) ImageMissing() bool { return true }
