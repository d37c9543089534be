package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/why"
)

func needing(labels ...string) jobs.Job {
	job := jobstest.Job()
	job.Needs = labels
	return job
}

// claimer claims as a worker that has some labels.
func claimer(tb testing.TB, q *queue.Queue, labels ...string) *queue.Claim {
	tb.Helper()
	c, err := q.Claim(jobstest.Context(tb), "w", []string{"default"}, labels...)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// A job is offered to workers that have all it needs and to no other: the
// broker delivers it once.
func TestAJobIsOfferedToWhoHasWhatItNeeds(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	both := jobstest.Submit(t, q, needing("gpu", "docker", "gpu"))
	if both.Class != "default--docker--gpu" || both.Queue != "default" {
		t.Errorf("class %s of queue %s", both.Class, both.Queue)
	}
	idle(t, q, 100*time.Millisecond) // has no label
	for _, labels := range [][]string{{"docker"}, {"gpu"}, {"docker", "other"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if c, err := q.Claim(ctx, "w", []string{"default"}, labels...); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a worker with %v claimed %v, %v", labels, c, err)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c, err := q.Claim(ctx, "w", []string{"other"}, "docker", "gpu"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a worker of another queue claimed %v, %v", c, err)
	}
	c := claimer(t, q, "x", "gpu", "docker")
	if c.Record().ID != both.ID || !slices.Equal(c.Job().Needs, []string{"gpu", "docker", "gpu"}) {
		t.Errorf("claimed %+v", c.Record())
	}
	js, err := jetstream.New(s.Connect())
	if err != nil {
		t.Fatal(err)
	}
	con, err := js.Consumer(jobstest.Context(t), "PS_Q_DEFAULT--DOCKER--GPU_P1", "w")
	if err != nil || con.CachedInfo().Delivered.Consumer != 1 {
		t.Errorf("%+v, %v; want one delivery", con, err)
	}
	settle(t, c, success)
	// A worker that has more labels than needed serves the other classes, too.
	plain := jobstest.Submit(t, q, jobstest.Job())
	if c := claimer(t, q, "docker", "gpu"); c.Record().ID != plain.ID {
		t.Errorf("claimed %+v", c.Record())
	}
	if _, err := q.Claim(jobstest.Context(t), "w", []string{"default--docker--gpu"}); err == nil {
		t.Error("a worker claims from a class by its name, whatever it has")
	}
}

// A worker that already waits hears of a job of a class that did not exist when
// it began to wait, and of one that comes back.
func TestANewClassNotifiesClaimers(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	long := queue.Config{Lease: 10 * time.Second} // so that a claimer looks by itself every Poll
	a, b := open(t, s, long), open(t, s, long)
	fastest := time.Hour
	// Without the notification each takes nearly as long as a claimer sleeps; with it a
	// busy machine may make some of them slow.
	for _, label := range []string{"gpu", "docker", "arm", "large", "small", "fast", "ssd", "ram"} {
		claims := make(chan *queue.Claim, 1)
		go func() {
			c, err := a.Claim(t.Context(), "w", []string{"default"}, label)
			if err != nil {
				t.Error(err)
			}
			claims <- c
		}()
		time.Sleep(500 * time.Millisecond) // it waits by now; if not, it is fast anyway
		begun := time.Now()
		rec := jobstest.Submit(t, b, needing(label))
		c := <-claims
		fastest = min(fastest, time.Since(begun))
		if c.Record().ID != rec.ID {
			t.Errorf("claimed %s, want %s", c.Record().ID, rec.ID)
		}
		settle(t, c, jobs.WorkerDrained.Ended("shutdown"))
		settle(t, claimer(t, b, label), success)
		if fastest < delivery.Poll/2 {
			return
		}
	}
	t.Errorf("the fastest claim took %s; a claimer that is not notified looks every %s", fastest, delivery.Poll)
}

// A pause of a queue holds its classes too, those that come later included.
func TestAPauseHoldsEveryClass(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	jobstest.Submit(t, q, needing("gpu"))
	hold(t, q, jobs.Hold{Kind: jobs.HoldQueue, Name: "default"})
	rec := jobstest.Submit(t, open(t, s, queue.Config{}), needing("docker"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := q.Claim(ctx, "w", []string{"default"}, "gpu", "docker"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claimed %v, %v from a paused queue", c, err)
	}
	wants(t, q, rec, why.KeptQueuePaused)
	if list, err := q.List(jobstest.Context(t), record.Filter{Queue: "default"}); err != nil || len(list) != 2 {
		t.Errorf("%d jobs of the queue, %v; want both classes'", len(list), err)
	}
	if err := q.Release(jobstest.Context(t), jobs.HoldQueue, "default", q.List); err != nil {
		t.Fatal(err)
	}
	present(t, q, why.Worker{Name: "w", Queues: []string{"default"}, Labels: []string{"gpu"}, Slots: 1})
	if got := wants(t, q, rec, why.KeptNeeds); got.Position != 1 {
		t.Errorf("%+v, want the first of its class", got)
	}
	for range 2 {
		settle(t, claimer(t, q, "gpu", "docker"), success)
	}
}
