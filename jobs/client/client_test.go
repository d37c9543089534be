package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// serve answers the requests of a new pool until the test ends, and returns the
// queue of its workers and a connection to it.
func serve(tb testing.TB) (*queue.Queue, *nats.Conn) {
	tb.Helper()
	nc := jobstest.Start(tb).Connect()
	return serveOn(tb, nc), nc
}

// serveOn is serve for a server that is there.
func serveOn(tb testing.TB, nc *nats.Conn) *queue.Queue {
	tb.Helper()
	q, log, store := jobstest.Queue(tb, nc, queue.Config{}), jobstest.Log(tb, nc), jobstest.Store(tb, nc)
	d := dispatcher.New(dispatcher.Config{Queue: q, Log: log, Store: store})
	server := api.New(api.Config{Dispatcher: d, Queue: q, Log: log, Store: store, Tokens: jobstest.Tokens(tb, nc), Audit: jobstest.Audit(tb, nc)})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	tb.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			tb.Errorf("serve: %v", err)
		}
	})
	return q
}

func open(tb testing.TB, nc *nats.Conn, cfg client.Config) *client.Client {
	tb.Helper()
	c, err := client.Open(jobstest.Context(tb), nc, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func plain() jobs.Job {
	job := jobstest.Job()
	job.Isolation = jobs.IsolationNone
	return job
}

// A program that knows nothing but the client, in its zero configuration, cancels a
// job: the job is over for everybody, in its record and in its session.
func TestACancelledJobIsOver(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	for _, role := range []jobs.Role{"", jobs.RoleSubmitter} { // by the streams, and by requests
		// A submitter's connection has other names for the broker's requests, which it
		// does not need.
		c := open(t, nc, client.Config{Role: role})
		ctx := jobstest.Context(t)
		made, err := c.Submit(ctx, plain())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Cancel(ctx, made.ID); err != nil {
			t.Fatal(err)
		}
		var kinds []jobs.Kind
		for event, err := range c.Follow(ctx, made.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, event.Kind)
		}
		if want := []jobs.Kind{jobs.JobSubmitted, jobs.JobFinished}; !slices.Equal(kinds, want) {
			t.Errorf("role %q: the session has %v, want %v", role, kinds, want)
		}
		result, err := c.Wait(ctx, made.ID)
		if err != nil || result.Outcome != jobs.Cancellation {
			t.Errorf("role %q: %+v, %v", role, result, err)
		}
		if _, err := c.Cancel(ctx, made.ID); !errors.Is(err, jobs.ErrFinished) {
			t.Errorf("role %q: again: %v", role, err)
		}
	}
}

// What is refused is told apart by errors.Is, on this side of the bus as on that.
func TestErrorsOfThePool(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	c := open(t, nc, client.Config{By: "test"})
	ctx := jobstest.Context(t)
	bad := plain()
	bad.Agent.MaxTurns = -1
	_, err := c.Submit(ctx, bad)
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	if !ok || len(invalid.Fields) != 1 || invalid.Fields[0].Field != "agent.max_turns" {
		t.Errorf("an invalid job: %v", err)
	}
	if _, err := c.Get(ctx, jobs.NewID()); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("no such job: %v", err)
	}
	made, err := c.Submit(ctx, plain())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Result(ctx, made.ID); !errors.Is(err, jobs.ErrNotFinished) {
		t.Errorf("the result of a job that has not finished: %v", err)
	}
	if _, err := c.Retry(ctx, made.ID, false); jobs.Code(err) != jobs.CodeNotRetryable {
		t.Errorf("retry a job that has not finished: %v", err)
	}
	rec, err := c.Cancel(ctx, made.ID)
	if err != nil || rec.Cancel == nil || rec.Cancel.By != "test" {
		t.Errorf("cancelled: %+v, %v", rec.Cancel, err)
	}
}

// Where no dispatcher answers, an error says so, and soon.
func TestNoDispatcher(t *testing.T) {
	t.Parallel()
	c := open(t, jobstest.Start(t).Connect(), client.Config{})
	began := time.Now()
	_, err := c.Submit(jobstest.Context(t), plain())
	if !errors.Is(err, client.ErrNoDispatcher) || !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("submit: %v", err)
	}
	if took := time.Since(began); took > jobstest.Patience/2 {
		t.Errorf("it took %v", took)
	}
}

// While the broker is away a request waits for it, and then says that there is no answer. The
// connections of the program keep no requests back meanwhile.
func TestTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	nc, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	serveOn(t, nc)
	c := open(t, nc, client.Config{})
	s.Down()
	for nc.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Get(brief, jobs.NewID()); !errors.Is(err, jobs.ErrUnavailable) || jobs.Code(err) != jobs.CodeUnavailable {
		t.Errorf("got %v (%s), want that it is away", err, jobs.Code(err))
	}
	back := make(chan struct{})
	time.AfterFunc(200*time.Millisecond, func() {
		defer close(back)
		s.Up()
	})
	defer func() { <-back }()
	if _, err := c.Submit(jobstest.Context(t), plain()); err != nil {
		t.Errorf("it is back: %v", err)
	}
}

// Following and waiting end with the cause of their context, and not silently.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	why := errors.New("enough")
	for _, role := range []jobs.Role{"", jobs.RoleSubmitter} {
		c := open(t, nc, client.Config{Role: role})
		made, err := c.Submit(jobstest.Context(t), plain())
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancelCause(jobstest.Context(t))
		defer end(nil)
		var last error
		for _, err := range c.Follow(ctx, made.ID, 0) {
			if last = err; err == nil {
				end(why)
			}
		}
		if !errors.Is(last, why) {
			t.Errorf("role %q: following ends with %v", role, last)
		}
		if _, err := c.Wait(ctx, made.ID); err == nil {
			t.Errorf("role %q: waiting ends without an error", role)
		}
	}
}

// A list has each job once, however many pages it takes.
func TestList(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	c := open(t, nc, client.Config{})
	ctx := jobstest.Context(t)
	var want, got []string
	for range 5 {
		made, err := c.Submit(ctx, plain())
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, made.ID)
	}
	for rec, err := range c.List(ctx, operation.ListRequest{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A dispatcher that has too much to do is not asked again at once.
func TestABusyPoolIsLeftAlone(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	answer := func(name string, reply func(*nats.Msg) *nats.Msg) {
		_, err := nc.Subscribe("penstock.v1.api."+name, func(m *nats.Msg) {
			if err := m.RespondMsg(reply(m)); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	record := encode(jobs.Record{ID: jobs.NewID(), Session: jobs.NewID(), State: jobs.Executing})
	busy := operation.Refusal{Error: operation.RefusalError{Code: jobs.CodeBusy, Message: "too many wait"}}
	asked := make(chan string, 1000)
	answer("get", func(*nats.Msg) *nats.Msg { return &nats.Msg{Data: record} })
	for _, name := range []string{"events", "wait"} {
		first := name == "wait" // a dispatcher has known the job
		answer(name, func(*nats.Msg) *nats.Msg {
			if first {
				first = false
				return &nats.Msg{Data: record}
			}
			asked <- name
			return &nats.Msg{Header: nats.Header{micro.ErrorHeader: {"too many wait"}}, Data: encode(busy)}
		})
	}
	c := open(t, nc, client.Config{Role: jobs.RoleSubmitter})
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() { _, _ = c.Wait(ctx, "a") }) // it ends with its context
	both.Go(func() {
		for event, err := range c.Follow(ctx, "a", 0) {
			if err == nil {
				t.Errorf("an event of nothing: %v", event)
			}
		}
	})
	defer both.Wait()
	defer cancel()
	for seen := map[string]bool{}; len(seen) < 2; {
		select {
		case name := <-asked:
			seen[name] = true
		case <-time.After(jobstest.Patience):
			t.Fatalf("asked is only %v", seen)
		}
	}
	time.Sleep(900 * time.Millisecond) // how often it asks is what is tested
	if n := len(asked); n > 6 {
		t.Errorf("asked %d times within 0.9 s, want once or twice by each", n)
	}
}

// A broker may take less than a message with images has.
func TestARequestThatTheBrokerDoesNotTake(t *testing.T) {
	t.Parallel()
	nc := jobstest.StartNarrow(t, 64<<10).Connect()
	serveOn(t, nc)
	c := open(t, nc, client.Config{})
	m := control.Message{Verb: control.Prompt, Images: []control.Image{{Type: "image/gif", Data: []byte("GIF89a" + strings.Repeat("x", 64<<10))}}}
	_, err := c.Send(jobstest.Context(t), jobs.NewID(), m)
	if jobs.Code(err) != jobs.CodeTooLarge || !strings.Contains(err.Error(), "at most 65536: raise its max_payload") {
		t.Errorf("got %v (%s), want that it is too large", err, jobs.Code(err))
	}
}
