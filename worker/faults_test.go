package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/workspace"
)

// The streams of the broker that tests make refuse everything.
const (
	eventStream  = "PS_EVENTS"
	objectStream = "OBJ_ps_artifacts"
	resultStream = "KV_ps_results"
)

// A breaker breaks one step of an attempt, the nth that there is.
type breaker struct {
	*field
	fault *jobstest.Fault
	js    jetstream.JetStream

	mu      sync.Mutex
	mend    func()
	cleanup int
}

// step breaks something if it is its turn, until the returned function repairs it.
func (b *breaker) step(name string, broken func() (mend func())) {
	if b.fault.Check(name) == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mend = broken()
}

func (b *breaker) mended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mend != nil {
		b.mend()
	}
	b.mend = nil
}

// refusing makes the broker refuse what is written to a stream.
func (b *breaker) refusing(stream string) func() (mend func()) {
	return func() func() {
		b.maxSize(stream, 1)
		return func() { b.maxSize(stream, 1<<20) }
	}
}

func (b *breaker) maxSize(stream string, n int32) {
	ctx := jobstest.Context(b)
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		b.Errorf("stream %s: %v", stream, err)
		return
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = n
	if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
		b.Errorf("stream %s: %v", stream, err)
	}
}

// moved renames what a pattern below the workspaces' directory finds, and
// puts a file in its place.
func (b *breaker) moved(pattern string) func() (mend func()) {
	return func() func() {
		found, err := filepath.Glob(filepath.Join(b.dir, pattern))
		if err != nil || len(found) != 1 {
			b.Errorf("%s: %v, %v", pattern, found, err)
			return nil
		}
		path, away := found[0], filepath.Join(b.TempDir(), "away")
		if err := errors.Join(os.Rename(path, away), os.WriteFile(path, nil, 0o600)); err != nil {
			b.Error(err)
		}
		return func() {
			if err := errors.Join(os.RemoveAll(path), os.RemoveAll(path), os.Rename(away, path)); err != nil && pattern == "trash" {
				b.Error(err)
			}
		}
	}
}

func (b *breaker) Prepare(ctx context.Context, req workspace.Request) (*workspace.Workspace, error) {
	if err := b.fault.Check("prepare"); err != nil {
		return nil, err
	}
	return b.spaces.Prepare(ctx, req)
}

func (b *breaker) Sweep(ctx context.Context) (workspace.Swept, error) { return b.spaces.Sweep(ctx) }

func (b *breaker) Evict(ctx context.Context, enough func() bool) (int, error) {
	return b.spaces.Evict(ctx, enough)
}

// A brittleBackend compiles no command when it is its turn to fail.
type brittleBackend struct {
	sandbox.Backend
	fault *jobstest.Fault
}

func (b brittleBackend) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	if err := b.fault.Check("compile the jail"); err != nil {
		return nil, err
	}
	return b.Backend.Command(spec)
}

// config is the field's, with every step of an attempt able to fail.
func (b *breaker) config() Config {
	cfg := b.cfg
	cfg.Spaces = b
	choose := cfg.Backend
	cfg.Backend = func(name string) (sandbox.Backend, error) {
		if err := b.fault.Check("choose a jail"); err != nil {
			return nil, err
		}
		backend, err := choose(name)
		return brittleBackend{backend, b.fault}, err
	}
	cfg.Hooks.Claimed = func(jobs.Record) { b.step("open the log", b.refusing(eventStream)) }
	cfg.Hooks.Jailed = func(jobs.Isolation, time.Duration, error) {
		b.step("append while the agent runs", b.refusing(eventStream))
	}
	cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
		switch stage {
		case "provision":
			b.step("append after the workspace", b.refusing(eventStream))
		case "agent":
			b.step("collect", b.moved("jobs/*/workspace"))
			b.step("store the patch", b.refusing(objectStream))
			b.step("list the patch", b.refusing(resultStream))
		case "collect":
			b.step("store the result", b.refusing(resultStream))
			b.step("remove the workspace", b.moved("trash"))
		case "cleanup":
			if b.cleanup++; b.cleanup == 2 { // the jail's comes first
				b.step("announce the end", b.refusing(eventStream))
			}
		}
	}
	return cfg
}

// Every step of an attempt is made to fail, one after the other. The job ends
// as the table says, once; and nothing is left behind.
func TestEveryStepFails(t *testing.T) {
	t.Parallel()
	// Of the first attempt: the reason, or none where it succeeds all the same.
	want := map[string]jobs.Reason{
		"open the log":                jobs.StoreFailed,
		"choose a jail":               jobs.SandboxMissing,
		"prepare":                     jobs.WorkspaceFailed,
		"append after the workspace":  jobs.StoreFailed,
		"compile the jail":            jobs.SandboxFailed,
		"append while the agent runs": jobs.StoreFailed,
		"collect":                     jobs.CollectFailed,
		"store the patch":             jobs.StoreFailed,
		"list the patch":              jobs.StoreFailed,
		"store the result":            jobs.StoreFailed,
		"remove the workspace":        "",
		"announce the end":            "",
	}
	requireJail(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	t.Run("step", func(t *testing.T) {
		for n := range len(want) + 1 {
			t.Run(strconv.Itoa(n+1), func(t *testing.T) {
				t.Parallel()
				b := &breaker{field: newField(t), fault: jobstest.FailNth(n + 1)}
				step := b.attemptOnce(want)
				mu.Lock()
				defer mu.Unlock()
				seen[step] = true
			})
		}
	})
	for step := range want {
		if !seen[step] {
			t.Errorf("step %q was never made to fail", step)
		}
	}
	if !seen[""] {
		t.Error("there are more steps than this test knows")
	}
}

// attemptOnce runs a job whose nth step fails, looks, and lets the job end.
func (b *breaker) attemptOnce(want map[string]jobs.Reason) (step string) {
	js, err := jetstream.New(b.server.Connect())
	b.must(err)
	b.js = js
	b.Cleanup(b.mended)
	b.cfg = b.config()
	stop := b.work()
	job := b.job("echo hello > new.txt")
	job.Retry.MaxAttempts = 1
	id := b.submit(job).ID
	var rec jobs.Record
	b.until("the attempt ends", func() bool {
		rec, err = b.eye.queue.Get(b.Context(), id)
		return err == nil && rec.Attempt > 0 && rec.State != jobs.Executing
	})
	step = b.fault.Step()
	if rec.Reason != want[step] || rec.Attempt != 1 {
		b.Errorf("after %q: attempt %d ended as %s %s (%s), want %q", step, rec.Attempt, rec.State, rec.Reason, rec.Message, want[step])
	}
	keeps := step == "collect" || step == "store the patch" || step == "list the patch"
	if left, err := filepath.Glob(filepath.Join(b.dir, "jobs", id+".*")); err != nil || (keeps || step == "remove the workspace") != (len(left) > 0) {
		b.Errorf("after %q: workspaces %q, err %v; want one that could not be salvaged: %v", step, left, err, keeps)
	}
	b.mended()
	if keeps {
		b.salvagedLater(id)
	}
	rec, events := b.ended(id)
	cause := jobs.Reasons[want[step]]
	if again := want[step] == "" || cause.Retry != jobs.Never && cause.Charge != jobs.ChargeAttempt; again != (rec.Outcome == jobs.Success) {
		b.Errorf("after %q: the job ended as %s %s (%s): %s", step, rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
	if step == "remove the workspace" {
		_, err := b.spaces.Sweep(b.Context())
		b.must(err)
	}
	stop()
	return step
}

// salvagedLater sweeps what an attempt had to leave, and finds it in the store.
func (b *breaker) salvagedLater(id string) {
	b.Helper()
	swept, err := b.spaces.Sweep(b.Context())
	if err != nil || len(swept.Workspaces) != 1 || len(swept.Kept) > 0 {
		b.Errorf("a sweep after the fault: %+v, %v; want one workspace removed", swept, err)
	}
	list, err := b.salvages(id)
	if err != nil || len(list) != 1 || list[0].Why != jobs.WorkerLost || list[0].Files != 1 {
		b.Errorf("salvages %+v, %v; want the one of the first attempt", list, err)
	}
}
