package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/election"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// leads lets a process take part until the test, or stop, ends it. The channels get the
// time whenever it begins and ends to lead.
func leads(t *testing.T, nc *nats.Conn) (began, ended chan time.Time, stop func()) {
	t.Helper()
	conn, err := wire.New(nc, jobs.RoleOperator)
	names, bad := subject.New("")
	if err := errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	// The bucket of the lease is one of the queue's.
	jobstest.Queue(t, nc, queue.Config{})
	began, ended = make(chan time.Time, 10), make(chan time.Time, 10)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		// That the connection is closed is an error, and no matter here.
		_ = (&election.Election{Conn: conn, Names: names}).Run(ctx, func(ctx context.Context) {
			began <- time.Now()
			<-ctx.Done()
			ended <- time.Now()
		})
	})
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return began, ended, stop
}

func within(t *testing.T, what string, notified chan time.Time) {
	t.Helper()
	select {
	case <-notified:
	case <-time.After(jobstest.Patience):
		t.Fatalf("%s: not within %s", what, jobstest.Patience)
	}
}

// One leads. When it ends, or dies, another does; and one that is silent is
// replaced, and knows by its own clock that it leads no more.
func TestOneLeads(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	first, firstEnded, stop := leads(t, s.Connect())
	within(t, "the first leads", first)
	proxy := s.Proxy()
	asked, err := s.Connect().SubscribeSync("penstock.v1.leader.*")
	if err != nil {
		t.Fatal(err)
	}
	second, secondEnded, _ := leads(t, jobstest.Connect(t, proxy.URL()))
	for range 2 { // it tries for the second time, so the first try is over
		if _, err := asked.NextMsg(jobstest.Patience); err != nil {
			t.Fatalf("the second does not ask whether the first is there: %v", err)
		}
	}
	if len(second) > 0 {
		t.Fatal("two lead")
	}
	if err := asked.Unsubscribe(); err != nil { // else it would seem to be there for ever
		t.Fatal(err)
	}
	stop()
	within(t, "the first ends", firstEnded)
	within(t, "the second leads", second)
	third, _, _ := leads(t, s.Connect())
	proxy.Blackhole()
	within(t, "the second, which hears nothing, ends", secondEnded)
	within(t, "the third leads", third)
}

// The process that leads knows so without the broker, for as long as it leads.
func TestTheLeaderKnowsThatThereIsOne(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	conn, err := wire.New(nc, jobs.RoleOperator)
	names, bad := subject.New("")
	if err := errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	jobstest.Queue(t, nc, queue.Config{})
	over, end := context.WithCancel(context.Background())
	end() // what asks the broker fails
	e := &election.Election{Conn: conn, Names: names}
	if led, err := e.Led(over); led || err == nil {
		t.Errorf("before: %v, %v", led, err)
	}
	ctx, cancel := context.WithCancel(jobstest.Context(t))
	if err := e.Run(ctx, func(context.Context) {
		if led, err := e.Led(over); !led || err != nil {
			t.Errorf("while it leads: %v, %v", led, err)
		}
		cancel()
	}); err != nil {
		t.Fatal(err)
	}
	if led, err := e.Led(over); led || err == nil {
		t.Errorf("after: %v, %v", led, err)
	}
}

// A leader that dies is known to be gone as soon as its connection is.
func TestADeadLeaderIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	nc := s.Connect()
	first, _, _ := leads(t, nc)
	within(t, "the first leads", first)
	cut(t, nc)
	begun := time.Now()
	second, _, _ := leads(t, s.Connect())
	within(t, "the second leads", second)
	if took := time.Since(begun); took >= election.Lease {
		t.Errorf("replaced after %s; want it sooner than the %s for which its word holds", took, election.Lease)
	}
}

// A broker whose clock was set back keeps a leader's lease for longer than it
// holds. That keeps no process from leading: its own leader leads at once, and
// others when by their clocks the lease is over.
func TestAWordThatTheBrokerKeepsTooLong(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	nc := s.Connect()
	began, ended, _ := leads(t, nc)
	within(t, "somebody leads", began)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(jobstest.Context(t), "ps_leader")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := bucket.Get(jobstest.Context(t), "dispatcher")
	if err != nil {
		t.Fatal(err)
	}
	other := jobs.NewID()
	if _, err := nc.SubscribeSync("penstock.v1.leader." + other); err != nil { // and it is silent
		t.Fatal(err)
	}
	for leader, text := range map[string]string{"itself": string(lease.Value()), "a silent dispatcher": `{"instance":"` + other + `"}`} {
		if _, err := bucket.Put(jobstest.Context(t), "dispatcher", []byte(text)); err != nil { // for ever
			t.Fatal(err)
		}
		within(t, "it ends, "+leader+" having the lease", ended)
		within(t, "it leads after "+leader, began)
	}
}

// cut closes a connection as the death of its process does, without a word.
func cut(t *testing.T, nc *nats.Conn) {
	t.Helper()
	nc.Close()
	if !nc.IsClosed() {
		t.Fatal("the connection is open")
	}
}
