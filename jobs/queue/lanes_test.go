package queue_test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// However many jobs of a higher priority there always are, those of lower ones
// have their share of the claims of each worker.
func TestNoLaneStarves(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	submit := func(p jobs.Priority, needs ...string) {
		job := jobstest.Job()
		job.Priority, job.Needs = p, needs
		jobstest.Submit(t, q, job)
	}
	const rounds, each = 3, 4
	for range rounds * delivery.LowShare {
		submit(jobs.High)
	}
	for range each {
		for _, p := range []jobs.Priority{jobs.Normal, jobs.Low} {
			submit(p)
			submit(p, "gpu") // another class of the queue: they share the turns
		}
	}
	var got []jobs.Record
	for range rounds * delivery.LowShare {
		c, err := q.Claim(jobstest.Context(t), "w", []string{"default"}, "gpu")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Record())
		settle(t, c, success)
	}
	count := func(list []jobs.Record, p jobs.Priority) (n int) {
		for _, rec := range list {
			if rec.Priority == p {
				n++
			}
		}
		return n
	}
	for part := range slices.Chunk(got, delivery.LowShare) {
		if n := count(part, jobs.Low); n != 1 {
			t.Errorf("%d of %d claims in a row were low, want 1", n, delivery.LowShare)
		}
	}
	for part := range slices.Chunk(got, delivery.NormalShare) {
		if n := count(part, jobs.Normal); n != 1 {
			t.Errorf("%d of %d claims in a row were normal, want 1", n, delivery.NormalShare)
		}
	}
	needy := 0
	for _, rec := range got {
		if rec.Priority == jobs.Normal && len(rec.Needs) > 0 {
			needy++
		}
	}
	if needy != rounds*delivery.LowShare/delivery.NormalShare/2 {
		t.Errorf("%d claims of the middle lane were of the class with needs, want half of them", needy)
	}
}

// A lane that waits for the disk, as it does in a cluster, is made anew where one server
// keeps it, and the other way round. The records have all of its jobs.
func TestALaneIsMadeAnew(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	rec := jobstest.Submit(t, open(t, s, queue.Config{}), jobstest.Job())
	js, err := jetstream.New(s.Connect())
	if err != nil {
		t.Fatal(err)
	}
	persists := func(name string) jetstream.StreamConfig {
		t.Helper()
		stream, err := js.Stream(jobstest.Context(t), name)
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config
	}
	const lane = "PS_Q_DEFAULT_P1"
	synced := persists(lane)
	if synced.PersistMode != jetstream.AsyncPersistMode {
		t.Errorf("a lane is made with %v", synced.PersistMode)
	}
	if records := persists("KV_ps_jobs"); records.PersistMode != jetstream.DefaultPersistMode {
		t.Errorf("the records are kept with %v", records.PersistMode)
	}
	if err := js.DeleteStream(jobstest.Context(t), lane); err != nil {
		t.Fatal(err)
	}
	synced.PersistMode = jetstream.DefaultPersistMode
	if _, err := js.CreateStream(jobstest.Context(t), synced); err != nil {
		t.Fatal(err)
	}
	upgraded := open(t, s, queue.Config{Upgrade: true})
	if err := upgraded.Enqueue(jobstest.Context(t), rec); err != nil {
		t.Fatal(err)
	}
	if mode := persists(lane).PersistMode; mode != jetstream.AsyncPersistMode {
		t.Errorf("a lane of before is kept with %v", mode)
	}
	if got := jobstest.Claim(t, upgraded, "w").Record().ID; got != rec.ID {
		t.Errorf("claimed %s, want %s", got, rec.ID)
	}
}
