package worker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/policy"
	"github.com/penstock-run/penstock/worker/workspace"
)

// linked lets the field's jobs work in worktrees of its repository.
func (f *field) linked() {
	f.Helper()
	var err error
	f.spaces, err = workspace.Open(f.Context(), workspace.Config{
		Dir: f.dir, Worktrees: filepath.Join(f.TempDir(), "worktrees"), Strategy: workspace.Linked,
		Salvage: Salvage(Config{Name: "sweeper", Queue: f.eye.queue, Log: f.eye.log, Store: f.eye.store}), Stored: Stored(f.eye.store),
	})
	f.must(err)
	f.cfg.Spaces, f.cfg.Workspace = f.spaces, string(workspace.Linked)
}

// one returns the data of the job's last event of a kind.
func one[T any](tb testing.TB, events []jobs.Event, kind jobs.Kind) (data T) {
	tb.Helper()
	for _, e := range events {
		if e.Kind == kind {
			if err := json.Unmarshal(e.Data, &data); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return data
}

// What a person adds to the worktree of an attempt that failed is there when the
// job goes on in it, and the agent is told where it is and what it finds.
func TestAJobGoesOnInItsWorktree(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.linked()
	job := f.job(`echo one >> new.txt; case "$PENSTOCK_PROMPT" in *"About your workspace"*) cat by-hand > told;; esac`)
	job.Check, job.Retry.MaxAttempts = []string{"test -e told"}, 1
	stop := f.work()
	rec := f.submit(job)
	failed, events := f.ended(rec.ID)
	if failed.Outcome != jobs.Failure {
		t.Fatalf("got %s, %s", failed.Outcome, failed.Message)
	}
	stop()
	at := one[event.WorkspaceReady](t, events, jobs.WorkspaceDone)
	if at.Strategy != string(workspace.Linked) || at.Reused || at.OriginalDir != f.repo || at.OriginalBranch != "main" || at.Branch != "penstock/job/"+at.Name {
		t.Errorf("got %+v", at)
	}
	f.must(os.WriteFile(filepath.Join(at.Path, "by-hand"), []byte("a person's\n"), 0o644))
	if _, err := f.eye.queue.Retry(t.Context(), rec.ID, true, nil); err != nil {
		t.Fatal(err)
	}
	again := f.work()
	f.until("the job has succeeded", func() bool {
		now, err := f.eye.queue.Get(t.Context(), rec.ID)
		return err == nil && now.Outcome == jobs.Success
	})
	again()
	events = f.events(rec.ID)
	if now := one[event.WorkspaceReady](t, events, jobs.WorkspaceDone); !now.Reused || now.Path != at.Path {
		t.Errorf("got %+v, was %+v", now, at)
	}
	// The last notice but the one that commits cannot be read here.
	notices := slices.DeleteFunc(slices.Clone(events), func(e jobs.Event) bool {
		return e.Kind != jobs.Notice || strings.Contains(string(e.Data), "look at these")
	})
	if got := one[event.Notice](t, notices, jobs.Notice); !strings.Contains(got.Text, "earlier attempt") || !strings.Contains(got.Text, "/workspace") || got.SalvageEpoch == 0 {
		t.Errorf("told %+v", got)
	}
	if told, err := os.ReadFile(filepath.Join(at.Path, "told")); err != nil || string(told) != "a person's\n" {
		t.Errorf("the agent found %q, %v", told, err)
	}
	if lines, err := os.ReadFile(filepath.Join(at.Path, "new.txt")); err != nil || string(lines) != "one\none\n" {
		t.Errorf("its files are %q, %v", lines, err)
	}
}

func TestAPolicyThatPermitsNoLinkedWorktree(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.linked()
	f.cfg.Policy = policy.Policy{Workspaces: []string{"overlay", "clone"}}
	rec, events := f.run(f.job("true"))
	if rec.Reason != jobs.PolicyDenied || !strings.Contains(rec.Message, "workspaces: linked is not permitted; permitted is overlay, clone") {
		t.Errorf("got %s: %s", rec.Reason, rec.Message)
	}
	if _, err := os.Stat(filepath.Join(f.repo, ".penstock")); count(events, jobs.WorkspaceDone) > 0 || !os.IsNotExist(err) {
		t.Errorf("something was made: %v", err)
	}
}

// What "auto" came to is permitted, or nothing runs there.
func TestAPolicyThatPermitsNotWhatTheHostCanDo(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Workspace = string(workspace.Auto)
	f.cfg.Policy = policy.Policy{Workspaces: []string{"hook"}}
	rec, events := f.run(f.job("true"))
	if rec.Reason != jobs.PolicyDenied || count(events, jobs.JailStarted) > 0 {
		t.Errorf("got %s: %s", rec.Reason, rec.Message)
	}
}
