package queue_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// rewrite changes a record as a release would that knows more.
func rewrite(t *testing.T, nc *nats.Conn, rec jobs.Record, change func(fields map[string]any)) {
	t.Helper()
	bucket, fields := bucketOf(t, nc), stored(t, nc, rec)
	change(fields)
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Put(jobstest.Context(t), rec.Class+"."+rec.ID, data); err != nil {
		t.Fatal(err)
	}
}

func bucketOf(t *testing.T, nc *nats.Conn) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(jobstest.Context(t), "ps_jobs")
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

func stored(t *testing.T, nc *nats.Conn, rec jobs.Record) map[string]any {
	t.Helper()
	e, err := bucketOf(t, nc).Get(jobstest.Context(t), rec.Class+"."+rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(e.Value(), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

func TestWhatANewerReleaseWroteIsKept(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	q := jobstest.Queue(t, nc, queue.Config{Lease: time.Minute})
	rec := jobstest.Submit(t, q, jobstest.Job())
	rewrite(t, nc, rec, func(fields map[string]any) {
		fields["schema"] = 7
		fields["later"] = map[string]any{"reviewer": "ann", "weight": 12345678901234567}
	})
	want, err := json.Marshal(stored(t, nc, rec)["later"])
	if err != nil {
		t.Fatal(err)
	}
	check := func(after string) {
		t.Helper()
		fields := stored(t, nc, rec)
		if got, err := json.Marshal(fields["later"]); err != nil || string(got) != string(want) || fields["schema"] != 7.0 {
			t.Errorf("after %s: schema %v, later %s, %v", after, fields["schema"], got, err)
		}
	}
	c := jobstest.Claim(t, q, "w")
	check("the claim")
	if _, err := c.Assert(jobstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	check("a heartbeat")
	if _, err := q.Cancel(jobstest.Context(t), rec.ID, "somebody"); err != nil {
		t.Fatal(err)
	}
	check("a wish to end")
	if _, err := c.Settle(jobstest.Context(t), jobs.Ended{Outcome: jobs.Cancellation, Reason: jobs.Cancelled}, nil); err != nil {
		t.Fatal(err)
	}
	check("the settlement")
	if _, err := q.Retry(jobstest.Context(t), rec.ID, false, nil); err != nil {
		t.Fatal(err)
	}
	check("a retry")
	if state := stored(t, nc, rec)["state"]; state != string(jobs.Pending) {
		t.Errorf("state %v, want pending", state)
	}
}

// A record that this release cannot read is for one that can: it is neither
// filed as a dead letter nor taken out of its queue, nor swept.
func TestWhatOnlyANewerReleaseReadsIsLeft(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	q := jobstest.Queue(t, nc, queue.Config{Lease: time.Minute})
	foreign := jobstest.Submit(t, q, jobstest.Job())
	rewrite(t, nc, foreign, func(fields map[string]any) {
		fields["schema"] = 7
		fields["worker"] = map[string]any{"host": "a", "slot": 3}
	})
	own := jobstest.Submit(t, q, jobstest.Job())
	if c := jobstest.Claim(t, q, "w"); c.Record().ID != own.ID {
		t.Errorf("claimed %s, want %s", c.Record().ID, own.ID)
	}
	letters, err := q.DeadLetters().List(jobstest.Context(t))
	if err != nil || len(letters) != 0 {
		t.Errorf("dead letters: %+v, %v", letters, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(jobstest.Context(t), "PS_Q_DEFAULT_P1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetLastMsgForSubject(jobstest.Context(t), "penstock.v1.q.default.p1.default."+foreign.ID); err != nil {
		t.Errorf("its message: %v", err)
	}
}
