package worker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/gate"
)

// ends is a field on which attempts end, in every way, many at once.
type ends struct {
	*field
	stub   jobs.Job // whose agent speaks as claude does
	kinds  []ending
	n      int      // attempts that have ended
	broken sync.Map // jobs whose jail did not start once
}

// Attempts end in every way, a hundred of them or, with PENSTOCK_TEST_ENDS, as many as
// asked for; each with its reason. In the end the process has what it had
// before, and so has the host: no goroutine, descriptor, child, mount, control
// group or file is left, and no process of any jail.
func TestEndsOfEveryKind(t *testing.T) {
	want := 100
	if asked, err := strconv.Atoi(os.Getenv("PENSTOCK_TEST_ENDS")); err == nil {
		want = asked
	}
	t.Setenv("TMPDIR", t.TempDir()) // what is left there is ours
	e := newEnds(t)
	e.run(e.job("true")) // what later ones share stays
	before := e.look()
	for e.n < want {
		e.round()
	}
	t.Logf("%d attempts have ended, of %d kinds", e.n, len(e.kinds)+1)
	left := e.more(before)
	for deadline := time.Now().Add(jobstest.Patience); len(left) > 0 && time.Now().Before(deadline); left = e.more(before) {
		time.Sleep(100 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("left are, beside what there was:\n%s", strings.Join(left, "\n"))
	}
}

func newEnds(t *testing.T) *ends {
	exectest.Need(t, "curl") // for some kinds; later others would be under way already
	e := &ends{field: newField(t)}
	e.kinds = slices.DeleteFunc(slices.Clone(endsOfAll), func(kind ending) bool { return !namedLimit(t, kind.reason) })
	e.stub = e.speaks(`eval "$SCRIPT"`)
	e.cfg.Slots, e.cfg.Hangs = 10, Hangs{
		Start: 10 * second, Halt: second, Exit: 2 * second, Output: 2 << 20, Retries: 10, Step: 300 * time.Millisecond,
	}
	e.hanging()
	choose := e.cfg.Backend
	e.cfg.Backend = func(name string) (sandbox.Backend, error) {
		backend, err := choose(name)
		switch name {
		case "seatbelt":
			return nil, &sandbox.UnsupportedError{Backend: name}
		case "systemd":
			return onceBroken{backend, &e.broken}, err
		}
		return backend, err
	}
	return e
}

// hanging gives the jails a world that answers, and never ends its answer.
func (e *ends) hanging() {
	hangs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello")
		_ = http.NewResponseController(w).Flush() // the other side may have gone
		<-r.Context().Done()
	})
	plain, secure := httptest.NewServer(hangs), httptest.NewTLSServer(hangs)
	e.Cleanup(plain.Close)
	e.Cleanup(secure.Close)
	e.cfg.Network.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("203.0.113.10")}, nil
	}
	e.cfg.Network.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		to := secure
		if a.Port() == 80 {
			to = plain
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", to.Listener.Addr().String())
	}
	g, err := gate.New(gate.Config{Key: "key", Upstream: plain.URL})
	e.must(err)
	e.Cleanup(func() { e.must(g.Close()) })
	e.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
}

// onceBroken makes each job's first jail one that cannot be started.
type onceBroken struct {
	sandbox.Backend
	broken *sync.Map
}

func (b onceBroken) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	job, _, _ := strings.Cut(spec.Label, ".")
	if _, again := b.broken.LoadOrStore(job, true); !again {
		return nil, fmt.Errorf("broken on purpose")
	}
	return b.Backend.Command(spec)
}

// round lets a worker bring jobs to every end, twice, and drains it.
func (e *ends) round() {
	stop := e.work()
	var open sync.WaitGroup
	for _, kind := range slices.Concat(e.kinds, e.kinds) {
		rec := e.submit(e.of(kind))
		open.Go(func() { e.follow(kind, rec) })
	}
	open.Wait()
	var drained []jobs.Record
	for range e.cfg.Slots {
		drained = append(drained, e.submit(e.job("echo begun; test $PENSTOCK_ATTEMPT = 2 || sleep 60")))
	}
	for _, rec := range drained {
		e.runs(rec.ID)
	}
	stop()
	stop = e.work()
	for _, rec := range drained {
		got, _ := e.ended(rec.ID)
		e.typed(ending{name: "drained", again: true}, got)
	}
	stop()
}

// of makes a job that ends so.
func (e *ends) of(kind ending) jobs.Job {
	job := e.job(kind.script)
	if kind.speaks {
		job = e.stub
		job.Env = map[string]string{"SCRIPT": kind.script}
	}
	job.Retry.MaxAttempts, job.Timeout = 1, jobs.Duration(2*time.Minute)
	if kind.job != nil {
		kind.job(&job)
	}
	return job
}

// follow does what is done to a job, and looks how it ends.
func (e *ends) follow(kind ending, rec jobs.Record) (events []jobs.Event) {
	ctx, cancel := context.WithTimeout(e.Context(), 10*jobstest.Patience)
	defer cancel()
	acted := kind.act == nil
	for event, err := range e.eye.log.Follow(ctx, rec.Session, 1, session.FollowOptions{Job: rec.ID}) {
		if err != nil {
			e.Errorf("%s: %v", kind.name, err)
			return events
		}
		events = append(events, event)
		if !acted && event.Kind == kind.on {
			acted = true
			if err := kind.act(e, rec); err != nil {
				e.Errorf("%s: %v", kind.name, err)
			}
		}
	}
	got, err := e.eye.queue.Get(e.Context(), rec.ID)
	if err != nil {
		e.Errorf("%s: %v", kind.name, err)
	}
	e.typed(kind, got)
	return events
}

func (e *ends) typed(kind ending, rec jobs.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n += rec.Attempt
	outcome := jobs.Success
	if kind.reason != "" {
		outcome = jobs.Reasons[kind.reason].Outcome
	}
	if rec.Outcome != outcome || rec.Reason != kind.reason || rec.Attempt > 1 != kind.again {
		e.Errorf("%s: ended with %s %s (%s) in attempt %d, want %s %s", kind.name, rec.Outcome, rec.Reason, rec.Message, rec.Attempt, outcome, kind.reason)
	}
}

// look counts what the process has, and what of the field's jobs the host has.
func (e *ends) look() map[string]int {
	has := map[string]int{"goroutine": ourGoroutines()}
	e.descriptors(has)
	children, err := filepath.Glob("/proc/self/task/*/children")
	e.must(err)
	for _, file := range children {
		list, _ := os.ReadFile(file) // the thread may have ended
		has["child"] += len(strings.Fields(string(list)))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	e.must(err)
	has["mount"] = bytes.Count(mounts, []byte(e.dir))
	e.groups(has)
	for _, dir := range []string{e.dir, os.TempDir()} {
		e.must(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			has["file "+path]++
			return err
		}))
	}
	return has
}

// more lists what there is more of than before.
func (e *ends) more(before map[string]int) (found []string) {
	for what, n := range e.look() {
		if n > before[what] {
			found = append(found, fmt.Sprintf("%s: %d, before %d", what, n, before[what]))
		}
	}
	slices.Sort(found)
	return found
}

var ours = regexp.MustCompile(`penstock/(worker|sandbox|jobs)[^\n]*\n`)

// ourGoroutines counts those that run code of what a worker is made of, and
// not only this test.
func ourGoroutines() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(stack, "_test.go") && ours.MatchString(stack) {
			n++
		}
	}
	return n
}

// descriptors counts those of each sort. The broker in this process opens the
// files of its store and closes them as it likes.
func (e *ends) descriptors(has map[string]int) {
	links, err := filepath.Glob("/proc/self/fd/*")
	e.must(err)
	for _, link := range links {
		to, err := os.Readlink(link)
		if err == nil && !strings.HasPrefix(to, e.server.Dir()) {
			sort, _, _ := strings.Cut(to, ":[")
			has["descriptor "+sort]++
		}
	}
}

// groups counts the control groups of the field's jobs.
func (e *ends) groups(has map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.must(filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.ContainsFunc(e.ids, func(id string) bool { return strings.Contains(d.Name(), id) }) {
			has["control group "+path]++
		}
		return nil // others make and remove groups meanwhile
	}))
}
