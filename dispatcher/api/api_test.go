package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A pool is a dispatcher and the answers to requests, on a real server.
type pool struct {
	*dispatcher.Dispatcher
	queue *queue.Queue
	nc    *nats.Conn

	unrecorded chan operation.AuditEntry
}

// open makes a pool that answers requests until the test ends. Nothing leads it.
func open(t *testing.T) pool {
	t.Helper()
	nc := jobstest.Start(t).Connect()
	p := pool{queue: jobstest.Queue(t, nc, queue.Config{}), nc: nc, unrecorded: make(chan operation.AuditEntry, 10)}
	log, store := jobstest.Log(t, nc), jobstest.Store(t, nc)
	p.Dispatcher = dispatcher.New(dispatcher.Config{Queue: p.queue, Log: log, Store: store})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	unrecorded := func(e operation.AuditEntry, _ error) { p.unrecorded <- e }
	server := api.New(api.Config{Unrecorded: unrecorded, Dispatcher: p.Dispatcher, Queue: p.queue, Log: log, Store: store, Tokens: jobstest.Tokens(t, nc), Audit: jobstest.Audit(t, nc)})
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return p
}

// submitted is the id of a new job.
func (p pool) submitted(t *testing.T) string {
	t.Helper()
	job := jobstest.Job()
	job.Isolation = jobs.IsolationNone
	answer, err := p.Submit(t.Context(), job, "test")
	if err != nil {
		t.Fatal(err)
	}
	return answer.ID
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(jobstest.Patience); time.Now().Before(end); time.Sleep(25 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", jobstest.Patience, what)
}

// Each operation of the table is served, no other is, and each refuses a field that
// it does not know, with the field named.
func TestEveryOperationIsServed(t *testing.T) {
	t.Parallel()
	p := open(t)
	var served []string
	for _, row := range operation.All() {
		served = append(served, row.Name)
		var refused operation.Refusal
		if err := json.Unmarshal(p.raw(t, row.Name, `{"colour":"red"}`), &refused); err != nil {
			t.Fatal(err)
		}
		if refused.Error.Code != jobs.CodeInvalid || len(refused.Error.Fields) == 0 || refused.Error.Fields[0].Field != "colour" {
			t.Errorf("%s refuses an unknown field with %+v", row.Name, refused.Error)
		}
	}
	msg, err := p.nc.Request("$SRV.INFO.penstock", nil, jobstest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	var info micro.Info
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range info.Endpoints {
		if !slices.Contains(served, strings.TrimPrefix(endpoint.Subject, "penstock.v1.api.")) {
			t.Errorf("%s is served and not in the table", endpoint.Subject)
		}
	}
}

// raw asks for an operation as a client without a library of ours does.
func (p pool) raw(t *testing.T, name, request string) []byte {
	t.Helper()
	var data []byte
	eventually(t, "an answer to "+name, func() bool {
		msg, err := p.nc.Request("penstock.v1.api."+name, []byte(request), jobstest.Patience)
		if err == nil {
			data = msg.Data
		}
		return err == nil
	})
	return data
}

// request asks for an operation and decodes the answer, or the refusal.
func request[Q, A any](t *testing.T, p pool, op operation.Operation[Q, A], r Q) (A, error) {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	data := p.raw(t, op.Name, string(body))
	var refused operation.Refusal
	var answer A
	if err := json.Unmarshal(data, &refused); err == nil && refused.Error.Code != "" {
		return answer, refused.Err()
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		t.Fatalf("%s: %v: %s", op.Name, err, data)
	}
	return answer, nil
}

// Statistics count each queue once over all pages, and the whole pool in each; a queue that
// is asked for by name is in them when it holds nothing, and one that there is not is refused.
func TestStatsOfQueues(t *testing.T) {
	t.Parallel()
	p := open(t)
	for _, name := range []string{"a", "b", "b", "c"} {
		job := jobstest.Job()
		job.Isolation, job.Queue = jobs.IsolationNone, name
		if _, err := p.Submit(t.Context(), job, "test"); err != nil {
			t.Fatal(err)
		}
	}
	var pages [][]string
	r := operation.StatsRequest{Limit: 2}
	for {
		answer, err := request(t, p, operation.Stats, r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Pending != 4 || answer.Queues != 3 || answer.Oldest == nil || answer.Window != jobs.Duration(operation.DefaultWindow) || answer.At.IsZero() {
			t.Errorf("the pool: %+v", answer)
		}
		var names []string
		for _, q := range answer.ByQueue {
			names = append(names, fmt.Sprintf("%s %d", q.Queue.Queue, q.Pending))
		}
		pages = append(pages, names)
		if r.After = answer.Next; answer.Next == "" {
			break
		}
	}
	if got := fmt.Sprint(pages); got != "[[a 1 b 2] [c 1]]" {
		t.Errorf("the pages are %s", got)
	}
	answer, err := request(t, p, operation.Stats, operation.StatsRequest{Queues: []string{"default", "b"}})
	if err != nil || len(answer.ByQueue) != 2 || answer.ByQueue[1].Pending != 0 || answer.Pending != 2 {
		t.Errorf("of two queues: %+v, %v", answer, err)
	}
	for _, wrong := range []operation.StatsRequest{{Queues: []string{"d"}}, {Queues: []string{"A B"}}, {Window: -1}, {Limit: -1}} {
		if answer, err := request(t, p, operation.Stats, wrong); err == nil {
			t.Errorf("%+v: %+v", wrong, answer)
		}
	}
}

// A list comes in pages that have each job once, whatever the size of a page, and
// whether or not the dispatcher still knows what it has read.
func TestPagesOfJobs(t *testing.T) {
	t.Parallel()
	p := open(t)
	var want []string
	for range 7 {
		want = append(want, p.submitted(t))
	}
	for _, limit := range []int{0, 1, 3, 7} {
		var got []string
		for after := ""; ; {
			answer, err := request(t, p, operation.List, operation.ListRequest{After: after, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range answer.Jobs {
				got = append(got, rec.ID)
			}
			if after = answer.Next; after == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d have %v, want %v", limit, got, want)
		}
	}
	answer, err := request(t, p, operation.List, operation.ListRequest{After: want[4], Limit: 1})
	if err != nil || len(answer.Jobs) != 1 || answer.Jobs[0].ID != want[5] {
		t.Errorf("from the middle: %+v, %v", answer, err)
	}
}

// Events come as they are stored; a request behind the last one waits, and says
// when nothing comes any more.
func TestEventsByRequests(t *testing.T) {
	t.Parallel()
	p := open(t)
	id := p.submitted(t)
	answer, err := request(t, p, operation.Events, operation.EventsRequest{ID: id})
	if err != nil || answer.Over || len(answer.Events) == 0 || answer.Events[0].Seq != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	last := answer.Events[len(answer.Events)-1].Seq
	if answer, err = request(t, p, operation.Events, operation.EventsRequest{ID: id, After: last}); err != nil || answer.Over || len(answer.Events) != 0 {
		t.Errorf("behind the last one: %+v, %v", answer, err)
	}
	other := p.submitted(t)
	if rec, err := request(t, p, operation.Cancel, operation.Ref{ID: other}); err != nil || rec.State != jobs.Finished {
		t.Fatalf("%+v, %v", rec, err)
	}
	var kinds []jobs.Kind
	for after, over := uint64(0), false; !over; {
		answer, err := request(t, p, operation.Events, operation.EventsRequest{ID: other, After: after, Limit: 1, For: jobs.Duration(operation.MaxWait)})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range answer.Events {
			kinds, after = append(kinds, e.Kind), e.Seq
		}
		over = answer.Over
	}
	if !slices.Equal(kinds, []jobs.Kind{jobs.JobSubmitted, jobs.JobFinished}) {
		t.Errorf("the session has %v", kinds)
	}
}

// submitAs submits a job as a client without a library of ours does that has chosen
// the job's id.
func (p pool) submitAs(t *testing.T, id string, job jobs.Job) (operation.Submitted, error) {
	t.Helper()
	var answer operation.Submitted
	body, err := json.Marshal(job)
	if err != nil {
		return answer, err
	}
	m := nats.NewMsg("penstock.v1.api.submit")
	m.Data = body
	m.Header.Set(operation.JobIDHeader, id)
	reply, err := p.nc.RequestMsg(m, jobstest.Patience)
	if err != nil {
		return answer, err
	}
	var refused operation.Refusal
	if err := json.Unmarshal(reply.Data, &refused); err == nil && refused.Error.Code != "" {
		return answer, refused.Err()
	}
	return answer, json.Unmarshal(reply.Data, &answer)
}

// Requests with one id that are answered at the same time are one job, with a key and
// without.
func TestRequestsWithOneIDAtOnce(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		p := open(t)
		job, id := jobstest.Job(), jobs.NewID()
		job.Isolation, job.Key = jobs.IsolationNone, key
		if _, err := request(t, p, operation.Get, operation.Ref{ID: id}); !errors.Is(err, jobs.ErrNotFound) {
			t.Fatal(err) // it answers
		}
		var g errgroup.Group
		for range 16 {
			g.Go(func() error {
				answer, err := p.submitAs(t, id, job)
				if err == nil && answer.ID != id {
					err = fmt.Errorf("the answer is %+v", answer)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Errorf("key %q: %v", key, err)
		}
		if claim := jobstest.Claim(t, p.queue, "w"); claim.Record().ID != id || claim.Job().Prompt != job.Prompt {
			t.Errorf("key %q: claimed %+v", key, claim.Record())
		}
		if list, err := p.queue.List(t.Context(), record.Filter{}); err != nil || len(list) != 1 {
			t.Errorf("key %q: %d jobs, %v, want 1", key, len(list), err)
		}
	}
}

// A request may choose its job's id: the same request again is the same job, and an id
// that another job has is refused, and does that one no harm.
func TestARequestChoosesItsID(t *testing.T) {
	t.Parallel()
	p := open(t)
	mine, id := jobstest.Job(), jobs.NewID()
	mine.Isolation = jobs.IsolationNone
	if _, err := request(t, p, operation.Get, operation.Ref{ID: id}); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err) // it answers
	}
	for _, again := range []bool{false, true} {
		if answer, err := p.submitAs(t, id, mine); err != nil || answer.ID != id || answer.Duplicate != again {
			t.Errorf("again %v: %+v, %v", again, answer, err)
		}
	}
	keyed := mine
	keyed.Key = "k"
	owner, err := p.submitAs(t, jobs.NewID(), keyed)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := p.submitAs(t, jobs.NewID(), keyed); err != nil || answer.ID != owner.ID || !answer.Duplicate {
		t.Errorf("a key that is taken: %+v, %v", answer, err)
	}
	other, taking, signed := mine, keyed, mine
	other.Prompt, taking.Prompt = "another", "another"
	signed.Signature = &jobs.Signature{ID: jobs.NewID(), Key: make([]byte, 32), Value: make([]byte, 64)}
	for _, bad := range []struct {
		id    string
		job   jobs.Job
		field string
	}{
		{id, other, "id"}, {id, taking, "id"}, {strings.ToUpper(id), mine, operation.JobIDHeader}, {"x.>", mine, operation.JobIDHeader},
		{id, signed, operation.JobIDHeader},
	} {
		_, err := p.submitAs(t, bad.id, bad.job)
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); !ok || invalid.Fields[0].Field != bad.field {
			t.Errorf("id %s: %v, want %s refused", bad.id, err, bad.field)
		}
	}
	// The same job by another name of it: the key's owner stands, and this one is whole.
	if answer, err := p.submitAs(t, id, keyed); err != nil || answer.ID != owner.ID {
		t.Errorf("under the id of one job and the key of another: %+v, %v", answer, err)
	}
	if job, err := p.queue.Job(t.Context(), id); err != nil || job.Prompt != mine.Prompt {
		t.Errorf("the job that had the id first: %+v, %v", job, err)
	}
	if list, err := p.queue.List(t.Context(), record.Filter{}); err != nil || len(list) != 2 {
		t.Errorf("%d jobs, %v, want 2", len(list), err)
	}
}
