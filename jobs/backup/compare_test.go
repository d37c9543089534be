package backup_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

// A broker to which a backup was restored holds what the file does; a message that is lost, changed or
// added is noticed in each stream. What the broker itself removes is not missed.
func TestCompare(t *testing.T) {
	t.Parallel()
	before := open(t, jobstest.Start(t).Connect())
	ctx := jobstest.Context(t)
	jobstest.Submit(t, before.queue, keyed("done"))
	done, err := before.work(ctx, "w")
	before.must(err)
	later := time.Now().Add(time.Hour)
	delayed := keyed("later")
	delayed.RunAt = &later
	jobstest.Submit(t, before.queue, delayed)
	soon := time.Now().Add(2 * time.Second)
	due := keyed("soon")
	due.RunAt = &soon
	jobstest.Submit(t, before.queue, due)
	path, m := before.file()
	time.Sleep(time.Until(soon.Add(time.Second))) // so that the broker sends this one at once
	f, err := backup.Open(path)
	before.must(err)
	defer f.Close()
	there := func(change func(nc *nats.Conn)) error {
		t.Helper()
		nc := jobstest.Start(t).Connect()
		before.must(f.Restore(ctx, nc, 1, nil))
		if change != nil {
			change(nc)
		}
		return f.Compare(ctx, nc)
	}
	if err := there(nil); err != nil {
		t.Errorf("an untouched copy: %v", err)
	}
	js := func(nc *nats.Conn) nats.JetStreamContext {
		js, err := nc.JetStream()
		before.must(err)
		return js
	}
	for _, s := range m.Streams {
		if s.Messages == 0 {
			continue
		}
		lost := s.Last
		if s.Name == "PS_SCHED" {
			lost = s.First // the job that is to wait for an hour
		}
		err := there(func(nc *nats.Conn) {
			msg, err := js(nc).GetMsg(s.Name, lost)
			before.must(err)
			before.must(js(nc).PurgeStream(s.Name, &nats.StreamPurgeRequest{Subject: msg.Subject}))
		})
		if different, ok := errors.AsType[*backup.DifferentError](err); !ok || different.Stream != s.Name {
			t.Errorf("a message of stream %s is lost: %v", s.Name, err)
		}
	}
	added := there(func(nc *nats.Conn) {
		_, err := js(nc).Publish("penstock.v1.sessions.default."+done.Session+".events", []byte("x"))
		before.must(err)
	})
	if different, ok := errors.AsType[*backup.DifferentError](added); !ok || different.Stream != "PS_EVENTS" {
		t.Errorf("an event is added: %v", added)
	}
	changed := there(func(nc *nats.Conn) {
		q := jobstest.Queue(t, nc, queue.Config{Lease: lease})
		if rec, err := q.Cancel(ctx, done.ID, "x"); err == nil {
			t.Errorf("%s was cancelled", rec.ID)
		}
		list, err := q.List(ctx, record.Filter{State: jobs.Delayed})
		before.must(err)
		_, err = q.Cancel(ctx, list[0].ID, "x")
		before.must(err)
	})
	if _, ok := errors.AsType[*backup.DifferentError](changed); !ok {
		t.Errorf("a job is cancelled: %v", changed)
	}
}
