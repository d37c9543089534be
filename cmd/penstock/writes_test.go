package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// The broker syncs each message to the disk that a job stores, so their number bounds how
// many jobs a pool does. It does not depend on the machine.
func TestWritesPerJob(t *testing.T) {
	t.Parallel()
	settled := make(chan jobs.Record, 1)
	var h pool.Hooks
	h.Worker.Settled = func(rec jobs.Record, _ jobs.Result) { settled <- rec }
	p := benchPool(t, 1, h)
	js, err := jetstream.New(p.Conn)
	if err != nil {
		t.Fatal(err)
	}
	written := func() map[string]uint64 {
		t.Helper()
		all := map[string]uint64{}
		list := js.ListStreams(jobstest.Context(t))
		for info := range list.Info() {
			// Workers and leaders report by the clock.
			byTime := info.Config.Name == "KV_ps_workers" || info.Config.Name == "KV_ps_leader"
			if info.Config.PersistMode != jetstream.AsyncPersistMode && !byTime {
				all[info.Config.Name] = info.State.LastSeq
			}
		}
		if list.Err() != nil {
			t.Fatal(list.Err())
		}
		return all
	}
	one := func() {
		t.Helper()
		if _, err := p.Dispatcher.Submit(t.Context(), noop("", jobs.IsolationNone, "none"), "test"); err != nil {
			t.Fatal(err)
		}
		if rec := <-settled; rec.Outcome != jobs.Success {
			t.Fatalf("%s %s: %s", rec.Outcome, rec.Reason, rec.Message)
		}
	}
	one()
	const many, most = 10, 13
	for try := 1; ; try++ {
		before := written()
		for range many {
			one()
		}
		after, all := written(), uint64(0)
		for _, stream := range slices.Sorted(maps.Keys(after)) {
			if n := after[stream] - before[stream]; n > 0 {
				all += n
				t.Logf("%-20s %5.1f", stream, float64(n)/many)
			}
		}
		if all <= most*many {
			return
		}
		// A job that a busy machine keeps for seconds has a heartbeat, too.
		if try == 3 {
			t.Fatalf("a job is %.1f synced messages, want at most %d", float64(all)/many, most)
		}
	}
}
