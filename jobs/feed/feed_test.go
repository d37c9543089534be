package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool is what changes, and a feed of it.
type pool struct {
	t     *testing.T
	nc    *nats.Conn
	queue *queue.Queue
	audit *audit.Log
	feed  *feed.Feed
}

func open(t *testing.T) *pool {
	t.Helper()
	return openAt(t, jobstest.Start(t))
}

func openAt(t *testing.T, server *jobstest.Server) *pool {
	t.Helper()
	nc := server.Connect()
	p := &pool{t: t, nc: nc, queue: jobstest.Queue(t, nc, queue.Config{}), audit: jobstest.Audit(t, nc)}
	p.feed = p.another()
	return p
}

// another is the feed of another server of the same pool.
func (p *pool) another() *feed.Feed { return p.over(p.nc) }

// over is a feed over a connection.
func (p *pool) over(nc *nats.Conn) *feed.Feed {
	p.t.Helper()
	f, err := feed.New(nc, feed.Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// A reader takes one item after the other.
type reader struct {
	t    *testing.T
	take func() (feed.Item, error, bool)
	stop func()
	last string // the place of the last item
}

func (p *pool) read(f *feed.Feed, after string) *reader {
	p.t.Helper()
	ctx, cancel := context.WithCancel(jobstest.Context(p.t))
	take, stop := iter.Pull2(f.Follow(ctx, after))
	r := &reader{t: p.t, take: take}
	r.stop = func() {
		cancel()
		stop()
	}
	p.t.Cleanup(r.stop)
	return r
}

// next is the next item, as a line: its kind, and what is said of it.
func (r *reader) next() string {
	r.t.Helper()
	item, err, ok := r.take()
	if err != nil || !ok {
		r.t.Fatalf("the feed has ended: %v", err)
	}
	r.last = item.Place
	var c feed.Change
	if err := json.Unmarshal(item.Data, &c); err != nil {
		r.t.Fatal(err)
	}
	parts := []string{string(item.Kind)}
	for _, part := range []string{c.ID, c.Name, string(c.State), string(c.Outcome), c.Operation} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if c.Gone {
		parts = append(parts, "gone")
	}
	return strings.Join(parts, " ")
}

func (r *reader) want(items ...string) {
	r.t.Helper()
	for _, want := range items {
		if got := r.next(); got != want {
			r.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func (p *pool) submit() string {
	p.t.Helper()
	return jobstest.Submit(p.t, p.queue, jobstest.Job()).ID
}

func (p *pool) finish(claim *queue.Claim) {
	p.t.Helper()
	if _, err := claim.Settle(jobstest.Context(p.t), jobs.Ended{Outcome: jobs.Success}, nil); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pool) note(op, about, outcome string) {
	p.t.Helper()
	if err := p.audit.Append(jobstest.Context(p.t), operation.AuditEntry{Operation: op, About: about, Who: "test", Via: "bus", Outcome: outcome}); err != nil {
		p.t.Fatal(err)
	}
}

// A reader is told first to read the lists, and then of each state of a job, but not of
// its heartbeats.
func TestStatesOfAJob(t *testing.T) {
	t.Parallel()
	p := open(t)
	before := p.submit()
	r := p.read(p.feed, "")
	r.want("reset")
	claim := jobstest.Claim(t, p.queue, "w")
	r.want("job " + before + " executing")
	if _, err := claim.Assert(jobstest.Context(t)); err != nil { // renews the lease
		t.Fatal(err)
	}
	p.finish(claim)
	r.want("job " + before + " finished success")
	r.want("job " + p.submit() + " pending")
}

// What operations change that no record tells of is told, unless it was refused, and
// without a word about who asked.
func TestOperationsAndLetters(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := p.read(p.feed, "")
	r.want("reset")
	p.note("queue-pause", "default", audit.Done)
	p.note("queue-pause", "default", "forbidden")
	p.note("token-add", "secret", audit.Done)
	p.note("schedule-remove", "nightly", audit.Done)
	p.note("dead-drop", "letter", audit.Done)
	r.want("queue default queue-pause", "schedule nightly schedule-remove", "dead letter dead-drop")
	if err := p.queue.Reject(jobstest.Context(t), queue.Submission{ID: "refused-1", Tenant: "default"}, jobs.ErrNotFound); err != nil {
		t.Fatal(err)
	}
	r.want("dead refused-1")
}

// Workers are told when they begin, have another number of jobs, and end.
func TestWorkers(t *testing.T) {
	t.Parallel()
	p := open(t)
	ctx := jobstest.Context(t)
	r := p.read(p.feed, "")
	r.want("reset")
	say := func(busy int) {
		if err := p.queue.Workers().Present(ctx, why.Worker{Name: "w1", Queues: []string{"default"}, Slots: 2, Busy: busy}); err != nil {
			t.Fatal(err)
		}
	}
	say(0)
	say(0)
	r.want("worker w1")
	say(1)
	r.want("worker w1")
	if err := p.queue.Workers().Leave(ctx, "w1"); err != nil {
		t.Fatal(err)
	}
	r.want("worker w1 gone")
}

// A reader that goes on elsewhere gets what has changed since, each job once and as it is
// now, and then what comes.
func TestGoingOn(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := p.read(p.feed, "")
	r.want("reset")
	one := p.submit()
	r.want("job " + one + " pending")
	r.stop()
	if n := p.feed.Readers(); n != 0 {
		t.Fatalf("%d readers are left", n)
	}

	p.finish(jobstest.Claim(t, p.queue, "w"))
	two := p.submit()
	p.note("batch-pause", "b", audit.Done)
	again := p.read(p.another(), r.last)
	again.want("job "+one+" finished success", "job "+two+" pending")
	middle := again.last
	again.want("batch b batch-pause", "worker")
	three := p.submit()
	again.want("job " + three + " pending")

	// In the middle of what it was told, and with the feed that has told it.
	p.read(p.another(), middle).want("job "+three+" pending", "batch b batch-pause", "worker")
	r = p.read(p.feed, again.last)
	r.want("worker")
	four := p.submit()
	r.want("job " + four + " pending")
	p.read(p.feed, again.last).want("job "+four+" pending", "worker") // behind a place before the window
	third := p.read(p.feed, r.last)
	r.want("job " + p.submit() + " pending")
	if got := third.next(); !strings.HasSuffix(got, "pending") || strings.Contains(got, four) {
		t.Errorf("behind a place of the window: %s", got)
	}
}

// A server may learn of a change later than another one. A reader that comes to it with
// the other one's place goes on there and does not begin anew.
func TestGoingOnWhereLessIsKnown(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	p := openAt(t, server)
	way := server.Proxy()
	late := p.over(jobstest.Connect(t, way.URL()))
	p.read(late, "").want("reset")
	way.Delay(300 * time.Millisecond)
	r := p.read(p.feed, "")
	r.want("reset")
	r.want("job " + p.submit() + " pending")
	next := p.submit()
	again := p.read(late, r.last)
	got := again.next()
	if got == "worker" { // any of them may have died; where all that was missed is told
		got = again.next()
	}
	if want := "job " + next + " pending"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A place that is of another pool, too old, or too far behind resets its reader. So does
// one that the broker has not come to, because it has lost what it had.
func TestPlacesThatAreNoGood(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := p.read(p.feed, "")
	r.want("reset")
	one := p.submit()
	r.want("job " + one + " pending")
	parts := strings.Split(r.last, "-")
	changed := func(part int, to string) string {
		other := append([]string(nil), parts...)
		other[part] = to
		return strings.Join(other, "-")
	}
	for name, place := range map[string]string{
		"no place": "12", "nothing": "-", "another pool": changed(0, "x"), "long ago": changed(1, "1"), "the future": changed(1, "zzzzzzz"),
		"no number": changed(2, "!"), "not reached": changed(2, "zzzz"), "another release": r.last + "-1",
	} {
		again := p.read(p.feed, place)
		if got := again.next(); got != "reset" {
			t.Errorf("%s: got %q", name, got)
		}
		again.stop()
	}
	far := p.another()
	far.Bound(100, 2)
	begin := r.last
	for range 2 {
		r.want("job " + p.submit() + " pending")
	}
	if got := p.read(far, begin).next(); !strings.HasPrefix(got, "job") {
		t.Errorf("not far behind: %s", got)
	}
	r.want("job " + p.submit() + " pending")
	again := p.another()
	again.Bound(100, 2)
	if got := p.read(again, begin).next(); got != "reset" {
		t.Errorf("far behind: %s", got)
	}
}

// A reader that does not keep up costs nothing: it begins anew, and says so.
func TestASlowReader(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.feed.Bound(4, 100)
	slow, fast := p.read(p.feed, ""), p.read(p.feed, "")
	slow.want("reset")
	fast.want("reset")
	for range 20 {
		fast.want("job " + p.submit() + " pending")
	}
	slow.want("reset")
	last := p.submit()
	slow.want("job " + last + " pending")
}

// However many readers there are, the broker serves one; and none when they have gone.
func TestOneSubscriptionForAll(t *testing.T) {
	t.Parallel()
	p := open(t)
	none := p.nc.NumSubscriptions()
	first := p.read(p.feed, "")
	first.want("reset")
	first.want("job " + p.submit() + " pending")
	one := p.nc.NumSubscriptions()
	var readers []*reader
	for range 100 {
		r := p.read(p.feed, "")
		r.want("reset")
		readers = append(readers, r)
	}
	id := p.submit()
	for _, r := range append(readers, first) {
		r.want("job " + id + " pending")
	}
	if many := p.nc.NumSubscriptions(); many > one+8 { // a look has one for a moment, of each stream
		t.Errorf("%d subscriptions for one reader, %d for 101", one, many)
	}
	for _, r := range append(readers, first) {
		r.stop()
	}
	if left := p.nc.NumSubscriptions(); left > none+1 {
		t.Errorf("%d subscriptions before, %d are left", none, left)
	}
}

// The feed goes on over a restart of the broker.
func TestARestartOfTheBroker(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t)
	p := openAt(t, server)
	r := p.read(p.feed, "")
	r.want("reset")
	r.want("job " + p.submit() + " pending")
	server.Restart()
	r.want("job " + p.submit() + " pending")
}

// Where there is no pool, a reader is told so.
func TestNoPool(t *testing.T) {
	t.Parallel()
	f, err := feed.New(jobstest.Start(t).Connect(), feed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for item, err := range f.Follow(jobstest.Context(t), "") {
		if err == nil {
			t.Errorf("of a pool that is not there: %v", item)
		}
		if !strings.Contains(fmt.Sprint(err), "follow the changes") {
			t.Errorf("the error is %v", err)
		}
	}
	if n := f.Readers(); n != 0 {
		t.Errorf("%d readers are left", n)
	}
}
