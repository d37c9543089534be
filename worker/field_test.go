package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event/eventtest"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/workspace"
)

// testLease is short, so that losing it takes a test little time, and long
// enough for a machine that is busy with other tests.
var testLease = slowtest.Pace(6 * time.Second)

// A field is where a test of the whole worker plays: a real server, a real
// repository, real workspaces and real jails. What it looks through is a
// connection of its own, which no fault touches.
type field struct {
	testing.TB
	server *jobstest.Server
	eye    parts
	repo   string
	dir    string // of the workspaces
	spaces *workspace.Spaces
	cfg    Config
	logged *lockedBuffer
	lease  time.Duration
	bounds jobs.Bounds // of attempts, of the next worker to connect
	mu     sync.Mutex
	ids    []string
}

// parts are what a process reaches over one connection.
type parts struct {
	queue *queue.Queue
	log   *session.Log
	store *artifact.Store
}

func (f *field) connect(url string) parts {
	nc := jobstest.Connect(f, url)
	p := parts{log: jobstest.Log(f, nc), store: jobstest.Store(f, nc)}
	p.queue = jobstest.Queue(f, nc, queue.Config{Lease: f.lease, Bounds: f.bounds, Finished: func(ctx context.Context, rec jobs.Record) error {
		result, err := p.store.Result(ctx, rec)
		if err != nil {
			return err
		}
		return p.log.Finish(ctx, rec, result)
	}})
	return p
}

func newField(tb testing.TB) *field {
	tb.Helper()
	return leasedField(tb, testLease)
}

// leasedField is a field whose leases are of another length. So many programs that begin at once
// may keep a worker from the processor for longer than the usual one.
func leasedField(tb testing.TB, lease time.Duration) *field {
	tb.Helper()
	requireJail(tb)
	f := &field{TB: tb, lease: lease, server: jobstest.Start(tb), repo: filepath.Join(tb.TempDir(), "repo"), dir: filepath.Join(tb.TempDir(), "work"), logged: &lockedBuffer{}}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the worker's log:\n%s", f.logged)
		}
	})
	f.eye = f.connect(f.server.URL())
	f.sh("/", `git init -q -b main "$1" && cd "$1" && echo hello > README && git add -A && git commit -q -m first`, f.repo)
	var err error
	f.spaces, err = workspace.Open(tb.Context(), workspace.Config{Dir: f.dir, Salvage: Salvage(Config{
		Name: "sweeper", Queue: f.eye.queue, Log: f.eye.log, Store: f.eye.store,
	})})
	f.must(err)
	choose := sync.OnceValues(func() (sandbox.Backend, error) { return backends.New(context.Background(), backends.Auto) })
	f.cfg = Config{
		Name: "w", Slots: 1, Queues: []string{"default"},
		Spaces: f.spaces, Agents: builtin.Agents(agent.Config{}),
		Backend: func(string) (sandbox.Backend, error) { return choose() },
		Secret:  func(string) (string, bool) { return "", false },
		Logger:  slog.New(slog.NewTextHandler(f.logged, nil)),
	}
	f.use(f.eye)
	return f
}

// use gives the worker its way to the server.
func (f *field) use(p parts) { f.cfg.Queue, f.cfg.Log, f.cfg.Store = p.queue, p.log, p.store }

// requireNamedLimit skips where it is not sure that a jail notices that this
// limit ended a program.
func requireNamedLimit(tb testing.TB, reason jobs.Reason) {
	tb.Helper()
	if !namedLimit(tb, reason) {
		jail, _ := backends.New(tb.Context(), backends.Auto)
		sandboxtest.Require(tb, jail, sandbox.FeatureCPU)
	}
}

// namedLimit is false without control groups: there a program that ends at once
// may only have seen a call fail. FeatureCPU is kept by nothing else.
func namedLimit(tb testing.TB, reason jobs.Reason) bool {
	tb.Helper()
	if reason != jobs.OutOfMemory && reason != jobs.ProcessLimit {
		return true
	}
	jail, err := backends.New(tb.Context(), backends.Auto)
	if err != nil {
		tb.Fatal(err)
	}
	enforced, err := sandboxtest.Enforced(tb.Context(), jail)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Contains(enforced, sandbox.FeatureCPU)
}

func requireJail(tb testing.TB) {
	tb.Helper()
	_, jail := backends.New(context.Background(), backends.Auto)
	_, git := exec.LookPath("git")
	for what, err := range map[string]error{"bwrap": jail, "git": git} {
		if err == nil {
			continue
		}
		if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), what) {
			tb.Fatalf("%s is needed: %v", what, err)
		}
		tb.Skipf("%s is needed: %v", what, err)
	}
}

func (f *field) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *field) sh(dir, script string, args ...string) {
	f.Helper()
	cmd := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com",
		"GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		f.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// job is one whose agent is a shell script, in a workspace of the repository.
func (f *field) job(script string) jobs.Job {
	return jobs.Job{
		Prompt: "test", Repo: jobs.Repo{URL: f.repo},
		Agent: jobs.Agent{Name: "command", Command: []string{"sh", "-c", script}},
	}
}

func (f *field) submit(job jobs.Job) jobs.Record {
	f.Helper()
	rec := jobstest.Submit(f, f.eye.queue, job.WithDefaults())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, rec.ID)
	return rec
}

// work runs the worker until the function it returns is called, which then
// looks for what is left behind.
func (f *field) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	worker := New(f.cfg) // now: the test may go on to configure another
	go func() { done <- worker.Run(ctx) }()
	due, ends := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- f.eye.queue.RunDue(due, nil) }() // what a dispatcher does
	stop = sync.OnceFunc(func() {
		f.Helper()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				f.Errorf("run: %v", err)
			}
		case <-time.After(jobstest.Patience):
			f.Error("the worker does not end")
			return
		}
		ends()
		f.must(<-served)
		f.nothingLeft()
	})
	f.Cleanup(stop)
	return stop
}

// ended waits for the end of a job and returns its record and its events.
func (f *field) ended(id string) (jobs.Record, []jobs.Event) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*jobstest.Patience)
	defer cancel()
	var events []jobs.Event
	for e, err := range f.eye.log.Follow(ctx, id, 1, session.FollowOptions{Job: id}) {
		if err != nil {
			f.Fatalf("job %s: %v; its events so far: %s", id, err, kinds(events))
		}
		events = append(events, e)
	}
	rec, err := f.eye.queue.Get(ctx, id)
	f.must(err)
	f.checkEvents(events)
	return rec, events
}

// run submits one job and lets a worker bring it to its end.
func (f *field) run(job jobs.Job) (jobs.Record, []jobs.Event) {
	f.Helper()
	stop := f.work()
	defer stop()
	rec := f.submit(job)
	return f.ended(rec.ID)
}

// until waits for something that nothing announces.
func (f *field) until(what string, ok func() bool) {
	f.Helper()
	for deadline := time.Now().Add(jobstest.Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("it did not happen: %s", what)
		}
	}
}

func (f *field) events(id string) []jobs.Event {
	f.Helper()
	var events []jobs.Event
	for e, err := range f.eye.log.Read(context.Background(), id, 1) {
		f.must(err)
		events = append(events, e)
	}
	return events
}

// runs waits until the job's agent has written its first line.
func (f *field) runs(id string) {
	f.Helper()
	f.until("the agent writes", func() bool { return count(f.events(id), jobs.OutputLine) > 0 })
}

func (f *field) checkEvents(events []jobs.Event) {
	f.Helper()
	for i, e := range events {
		eventtest.Strict(f, e)
		if e.Seq != uint64(i+1) {
			f.Fatalf("event %d has number %d: %s", i+1, e.Seq, kinds(events))
		}
	}
	if got := count(events, jobs.JobFinished); got != 1 {
		f.Errorf("finished %d times: %s", got, kinds(events))
	}
}

func (f *field) nothingLeft() {
	f.Helper()
	for _, sub := range []string{"jobs", "locks", "trash"} {
		left, err := os.ReadDir(filepath.Join(f.dir, sub))
		if err != nil || len(left) > 0 {
			f.Errorf("%s: %v left behind, err %v", sub, left, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if left := processesOf(f.ids...); len(left) > 0 {
		f.Errorf("processes are left: %v", left)
	}
}

// processesOf finds the processes that carry the id of one of the jobs in their
// arguments or their environment: the jails' own and the agents'.
func processesOf(ids ...string) []string {
	var found []string
	one := func(data []byte) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return bytes.Contains(data, []byte(id)) })
	}
	for _, name := range []string{"cmdline", "environ"} {
		files, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && one(data) {
				found = append(found, filepath.Dir(file))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func count(events []jobs.Event, kind jobs.Kind) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func kinds(events []jobs.Event) string {
	var words []string
	for _, e := range events {
		words = append(words, fmt.Sprintf("%d:%s", e.Attempt, e.Kind))
	}
	return strings.Join(words, " ")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
