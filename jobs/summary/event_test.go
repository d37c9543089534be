package summary

import (
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// What the first events of a job say to a person has no values that mean nothing.
func TestFirstEvents(t *testing.T) {
	at := time.Date(2026, 3, 1, 4, 5, 6, 0, time.UTC)
	for want, payload := range map[string]event.Payload{
		"job.submitted: queue q, priority high": event.JobSubmitted{Queue: "q", Priority: jobs.High, Item: "its id"},
		"job.submitted: queue q, priority high, item 7, not before 2026-03-01 04:05:06: Fix it …": event.JobSubmitted{
			Queue: "q", Priority: jobs.High, Batch: "b", Item: "7", NotBefore: &at, Title: "Fix it\nand more",
		},
		"workspace.ready: overlay of main at 40c9f85e2ed9, in 0.4s": event.WorkspaceReady{
			Isolation: jobs.IsolationWorktree, Strategy: "overlay", OriginalBranch: "main",
			Base: "40c9f85e2ed9766906aa4b4981d16461b51fc960", Seconds: 0.426271991,
		},
		"workspace.ready: linked of penstock/x at aaaaaaaaaaaa, worktree x, in 1.0s": event.WorkspaceReady{
			Isolation: jobs.IsolationWorktree, Strategy: "linked", Name: "x", Branch: "penstock/x", OriginalBranch: "main",
			Head: "aaaaaaaaaaaaaaaa", Base: "40c9f85e2ed9766906aa4b4981d16461b51fc960", Seconds: 1,
		},
		"workspace.ready: none, in 0.0s": event.WorkspaceReady{Isolation: jobs.IsolationNone},
		"check.started: make test":       event.CheckStarted{Command: "make test"},
	} {
		if got := Event(event.New(payload)); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
