package worker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/worker/policy"
)

// branchJob is a job that delivers a branch, which tells the attempt.
func (f *field) branchJob(script string) jobs.Job {
	job := f.job(script)
	job.Deliver.Mode = jobs.DeliverBranch
	return job
}

func (f *field) git(args ...string) string {
	f.Helper()
	out, err := exec.Command("git", append([]string{"-C", f.repo}, args...)...).CombinedOutput()
	if err != nil {
		f.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// branches lists what was delivered.
func (f *field) branches() string {
	f.Helper()
	return f.git("for-each-ref", "--format=%(refname:short)", "refs/heads/penstock")
}

// wellDelivered wants one branch of the job, with that in new.txt.
func (f *field) wellDelivered(rec jobs.Record, events []jobs.Event, content string) event.BranchDelivered {
	f.Helper()
	branch := "penstock/" + rec.ID
	result, err := f.eye.store.Result(f.Context(), rec)
	f.must(err)
	if rec.Outcome != jobs.Success || result.Branch != branch || f.branches() != branch || count(events, jobs.BranchDone) != 1 {
		f.Fatalf("%s %s (%s), branch %q of %q: %s", rec.Outcome, rec.Reason, rec.Message, result.Branch, f.branches(), kinds(events))
	}
	var data event.BranchDelivered
	for _, e := range events {
		if e.Kind == jobs.BranchDone {
			f.must(json.Unmarshal(e.Data, &data))
		}
	}
	if tip := f.git("rev-parse", branch); data.Commit != tip || data.Branch != branch || data.Repo != f.repo {
		f.Errorf("the event says %+v, the branch is at %s", data, tip)
	}
	if got := f.git("show", branch+":new.txt"); got != content {
		f.Errorf("the branch has %q, want %q", got, content)
	}
	if got := f.git("rev-list", "--count", "main.."+branch); got != "1" {
		f.Errorf("the branch is %s commits ahead, want 1", got)
	}
	return data
}

func TestABranchIsDelivered(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.CommitAuthor = "Bot <bot@example.org>"
	rec, events := f.run(f.branchJob("echo mine > new.txt"))
	f.wellDelivered(rec, events, "mine")
	want := "Bot bot@example.org test\n\nPenstock-Job: " + rec.ID + "\nPenstock-Session: " + rec.Session
	if got := f.git("log", "-1", "--format=%an %ce %B", "penstock/"+rec.ID); got != want {
		t.Errorf("the commit says\n%s\nwant\n%s", got, want)
	}
}

// What is not a success is no branch, nor is a success without a change.
func TestNoBranchIsDelivered(t *testing.T) {
	t.Parallel()
	f := newField(t)
	stop := f.work()
	defer stop()
	failing := f.branchJob("echo mine > new.txt; exit 1")
	for _, job := range []jobs.Job{failing, f.branchJob("true")} {
		rec, events := f.ended(f.submit(job).ID)
		if f.branches() != "" || count(events, jobs.BranchDone) != 0 {
			t.Errorf("%s: there is %s: %s", rec.Outcome, f.branches(), kinds(events))
		}
	}
}

// A worker whose policy forbids delivery does not even begin, and says so; what
// only stays in the store is no delivery.
func TestAPolicyThatForbidsDelivery(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Policy = policy.Policy{Deliver: []string{"none"}}
	stop := f.work()
	defer stop()
	rec, events := f.ended(f.submit(f.branchJob("echo mine > new.txt")).ID)
	if rec.Reason != jobs.PolicyDenied || rec.Attempt != 1 || !strings.Contains(rec.Message, "deliver: branch is not permitted; permitted is none") ||
		count(events, jobs.WorkspaceDone) > 0 || f.branches() != "" {
		t.Errorf("%s %s (%s), branches %q: %s", rec.Outcome, rec.Reason, rec.Message, f.branches(), kinds(events))
	}
	if rec, _ := f.ended(f.submit(f.job("echo mine > new.txt")).ID); rec.Outcome != jobs.Success {
		t.Errorf("a job that delivers nothing: %s %s (%s)", rec.Outcome, rec.Reason, rec.Message)
	}
}

// A delivery that cannot be made says why, once, and the result is there.
func TestADeliveryThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		reason       jobs.Reason
	}{
		{"the branch exists", `git branch penstock/mine`, jobs.BranchExists},
		{"nothing can be written", `rm -rf .git/objects/pack && : > .git/objects/pack`, jobs.DeliveryFailed},
		{"the repository is gone", `mv .git gone`, jobs.DeliveryFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			f.cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
				if stage == "agent" {
					f.sh(f.repo, c.script)
				}
			}
			job := f.branchJob("echo mine > new.txt")
			job.Deliver.Branch = "penstock/mine"
			rec, events := f.run(job)
			result, err := f.eye.store.Result(t.Context(), rec)
			f.must(err)
			if rec.Outcome != jobs.Error || rec.Reason != c.reason || rec.Attempt != 1 || result.Branch != "" {
				t.Errorf("%s %s (%s) after %d attempts, branch %q: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, result.Branch, kinds(events))
			}
			if result.FilesChanged != 1 || len(result.Artifacts) != 1 || result.Artifacts[0].Name != PatchName {
				t.Errorf("%d files changed, artifacts %v; want the patch", result.FilesChanged, result.Artifacts)
			}
		})
	}
}

// A job that is cancelled before its branch is made has none, and one whose lease is
// lost there is delivered by its next attempt.
func TestNoBranchWithoutTheLease(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		f := newField(t)
		var id string
		f.cfg.Hooks.Claimed = func(rec jobs.Record) { id = rec.ID }
		f.cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
			if stage == "collect" {
				_, err := f.eye.queue.Cancel(context.Background(), id, "test")
				if err != nil {
					t.Error(err)
				}
			}
		}
		rec, _ := f.run(f.branchJob("echo mine > new.txt"))
		if rec.Outcome != jobs.Cancellation || f.branches() != "" {
			t.Errorf("%s %s, and there is %q", rec.Outcome, rec.Reason, f.branches())
		}
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		f := newField(t)
		proxy := f.server.Proxy()
		f.use(f.connect(proxy.URL()))
		var once sync.Once
		f.cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
			if stage == "collect" {
				once.Do(func() {
					proxy.Cut()
					time.Sleep(testLease + time.Second)
					if f.branches() != "" {
						t.Errorf("there is %s", f.branches())
					}
					proxy.Heal()
				})
			}
		}
		rec, events := f.run(f.branchJob("echo $PENSTOCK_ATTEMPT > new.txt"))
		if data := f.wellDelivered(rec, events, "2"); data.Replaced != "" {
			t.Errorf("attempt 2 found a branch of attempt 1: %+v", data)
		}
	})
}

// An attempt that made the branch and could not settle is followed by one
// that knows it: there is one branch, and it is the result's.
func TestADeliveryThatWasNotSettled(t *testing.T) {
	t.Parallel()
	f := newField(t)
	b := &breaker{field: f}
	js, err := jetstream.New(f.server.Connect())
	f.must(err)
	b.js = js
	var once sync.Once
	f.cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
		if stage != "cleanup" || f.branches() == "" {
			return
		}
		once.Do(func() { b.maxSize(resultStream, 1) })
	}
	var first string
	f.cfg.Hooks.Settled = func(rec jobs.Record, _ jobs.Result) {
		if rec.Attempt == 1 {
			first = f.git("rev-parse", "penstock/"+rec.ID)
			b.maxSize(resultStream, 1<<20)
		}
	}
	stop := f.work()
	id := f.submit(f.branchJob("echo $PENSTOCK_ATTEMPT > new.txt")).ID
	rec, events := f.ended(id)
	stop()
	if rec.Attempt != 2 {
		t.Fatalf("%d attempts: %s", rec.Attempt, kinds(events))
	}
	var data event.BranchDelivered
	for _, e := range events {
		if e.Kind == jobs.BranchDone && e.Attempt == 2 {
			f.must(json.Unmarshal(e.Data, &data))
		}
	}
	if tip := f.git("rev-parse", f.branches()); data.Commit != tip || data.Replaced != first || first == tip {
		t.Errorf("the branch is at %s and was at %s, the event says %+v", tip, first, data)
	}
	if got := f.git("show", f.branches()+":new.txt"); got != "2" || rec.Outcome != jobs.Success {
		t.Errorf("%s, and the branch has %q, want 2", rec.Outcome, got)
	}
	if left, err := os.ReadDir(filepath.Join(f.dir, "jobs")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Right before the branch is made the broker is asked, whatever this process
// believes: one that slept has not been told yet.
func TestTheLeaseIsProvenBeforeTheBranch(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.submit(f.branchJob("true"))
	slept := jobstest.Claim(t, f.eye.queue, "sleeper")
	heir := jobstest.Claim(t, f.eye.queue, "heir")
	for claim, want := range map[*queue.Claim]error{slept: jobs.ErrFenced, heir: nil} {
		a, _ := New(f.cfg).newAttempt(claim, nil)
		_, err := a.of.out.Permit(t.Context(), "penstock/x", "0123")
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", claim.Record().Worker, err, want)
		}
		if noted, err := f.eye.store.Deliveries(t.Context(), a.rec.ID); err != nil || noted[claim.Epoch()] != (event.BranchDelivered{Branch: "penstock/x", Commit: "0123"}) {
			t.Errorf("%s: noted %v, %v; want what it meant to do", claim.Record().Worker, noted, err)
		}
	}
}
