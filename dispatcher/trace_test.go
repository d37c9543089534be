package dispatcher_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	sender  = "00-" + traceID + "-00f067aa0ba902b7-01"
	other   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// badTraces are headers from which no trace is taken, and which keep no job out.
var badTraces = map[string][]string{
	"not hexadecimal": {strings.Replace(sender, "4bf9", "4bfg", 1)}, "upper case": {strings.ToUpper(sender)}, "zeros": {"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"},
	"long": {strings.Repeat("x", 10_000)}, "twice": {sender, other}, "a line more": {sender + "\r\nPenstock-By: root"},
}

// trace is that of the job's record.
func (p pool) trace(t *testing.T, id string) jobs.Trace {
	t.Helper()
	rec, err := p.queue.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Trace
}

// A request over the bus and a plain publish have the trace in their headers, and a
// CloudEvent has it among its attributes. What the job itself says counts more.
func TestTracesOnTheBus(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	own := job()
	own.Trace = jobs.Trace{Parent: other}
	header := map[string][]string{"traceparent": {sender}, "tracestate": {"a=1"}}
	sent := jobs.Trace{Parent: sender, State: "a=1"}
	event := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/ci"}, "ce-type": {"x"}, "ce-traceparent": {other}}
	both := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"2"}, "ce-source": {"/ci"}, "ce-type": {"x"}, "ce-traceparent": {other}, "Traceparent": {sender}}
	for name, c := range map[string]struct {
		header map[string][]string
		job    jobs.Job
		want   jobs.Trace
	}{
		"a header":                {header, job(), sent},
		"in another case":         {map[string][]string{"TraceParent": {sender}}, job(), jobs.Trace{Parent: sender}},
		"the job's own":           {header, own, own.Trace},
		"nothing":                 {nil, job(), jobs.Trace{}},
		"a CloudEvent":            {event, job(), own.Trace},
		"a CloudEvent and header": {both, job(), jobs.Trace{Parent: sender}},
		"tracestate that is bad":  {map[string][]string{"traceparent": {sender}, "tracestate": {strings.Repeat("a=1,", 2500)}}, job(), jobs.Trace{Parent: sender}},
	} {
		id := jobs.NewID()
		if c.want == (jobs.Trace{}) {
			c.want = jobs.RootTrace(id)
		}
		p.sends(t, "penstock.v1.submit.default", id, c.header, c.job)
		eventually(t, name+" is taken", func() bool { _, err := p.queue.Get(t.Context(), id); return err == nil })
		if got := p.trace(t, id); got != c.want {
			t.Errorf("%s: a published job is part of %+v, want %+v", name, got, c.want)
		}
		if _, isEvent := c.header["ce-id"]; isEvent {
			continue // requests are none
		}
		id = jobs.NewID()
		if c.want.Parent != sender && c.want.Parent != other {
			c.want = jobs.RootTrace(id)
		}
		p.sends(t, "penstock.v1.api.submit", id, c.header, c.job)
		if got := p.trace(t, id); got != c.want {
			t.Errorf("%s: the job of a request is part of %+v, want %+v", name, got, c.want)
		}
	}
}

// sends sends a job as a program without a library of ours does.
func (p pool) sends(t *testing.T, to, id string, header map[string][]string, j jobs.Job) {
	t.Helper()
	body, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	msg := &nats.Msg{Subject: to, Data: body, Header: nats.Header{operation.JobIDHeader: {id}}}
	for name, values := range header {
		msg.Header[name] = values
	}
	answer, err := p.nc.RequestMsgWithContext(jobstest.Context(t), msg)
	for errors.Is(err, nats.ErrNoResponders) { // the dispatcher is just starting
		answer, err = p.nc.RequestMsgWithContext(jobstest.Context(t), msg)
	}
	if err != nil || strings.Contains(string(answer.Data), `"error"`) {
		t.Fatalf("%s: %v, %+v", to, err, answer)
	}
}

// A header that is no trace does no harm: the job begins its own.
func TestBadTracesOnTheBus(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	for name, values := range badTraces {
		id := jobs.NewID()
		p.sends(t, "penstock.v1.api.submit", id, map[string][]string{"traceparent": values}, job())
		if got := p.trace(t, id); name != "a line more" && got != jobs.RootTrace(id) || got.TraceID() == "" {
			t.Errorf("%s: the job is part of %+v", name, got)
		}
	}
}

// A child is part of its parent's trace, under the attempt that runs; a fork and a firing
// of a schedule are part of the request's. A job that comes back stays in its trace.
func TestTracesOfJobsThatComeOfOthers(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	first := job()
	first.Trace = jobs.Trace{Parent: sender, State: "a=1"}
	made, err := p.Submit(t.Context(), first, "test")
	if err != nil {
		t.Fatal(err)
	}
	claim := jobstest.Claim(t, p.queue, "w")
	child := job()
	child.Parent = made.ID
	under := func(want jobs.Trace) {
		t.Helper()
		below, err := p.Submit(t.Context(), child, "test")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.trace(t, below.ID); got != want || got.TraceID() != traceID {
			t.Errorf("the child is part of %+v, want %+v", got, want)
		}
	}
	under(claim.Record().Span(1))
	if _, err := claim.Settle(t.Context(), jobs.Ended{Outcome: jobs.Failure, Reason: jobs.AgentFailed}, p.log.Finisher(p.store.Result)); err != nil {
		t.Fatal(err)
	}
	if got := p.trace(t, made.ID); got != first.Trace {
		t.Errorf("after an attempt the job is part of %+v", got)
	}
	c, err := client.Open(jobstest.Context(t), p.nc, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	child.Trace = jobs.Trace{Parent: other}
	if below, err := c.WithTrace(jobs.Trace{Parent: sender}).Submit(t.Context(), child); err != nil || p.trace(t, below.ID).Parent != other {
		t.Errorf("a child with a trace of its own: %+v, %v", below, err)
	}
}

// Events of a job tell which span they are part of.
func TestEventsHaveTraces(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	seen, err := p.nc.SubscribeSync("penstock.v1.sessions.>")
	if err != nil {
		t.Fatal(err)
	}
	j := job()
	j.Trace = jobs.Trace{Parent: sender, State: `a=100%,b="x y"`}
	made, err := p.Submit(t.Context(), j, "test")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := seen.NextMsgWithContext(jobstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := p.queue.Get(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := cloudevent.Decode(msg.Header, msg.Data)
	if err != nil || len(events) != 1 || events[0].Trace != rec.Span(0) || events[0].Trace.State != j.Trace.State {
		t.Errorf("the event is %+v, %v, want it part of %+v", events, err, rec.Span(0))
	}
}
