package artifact_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// The names of all objects are read once for any number of jobs, and a job's later ones are found all the
// same, also when it is purged once more.
func TestPurgesReadTheNamesOnce(t *testing.T) {
	t.Parallel()
	const many = 60
	ctx, srv := jobstest.Context(t), jobstest.Start(t)
	nc := srv.Connect()
	s := jobstest.Store(t, nc)
	put := func(job, name string) {
		t.Helper()
		if _, err := s.Put(ctx, job, 7, name, bytes.NewReader(make([]byte, 3000))); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for range many {
		ids = append(ids, jobs.NewID())
		put(ids[len(ids)-1], "changes.patch")
	}
	objects := func() int {
		t.Helper()
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		store, err := js.ObjectStore("ps_artifacts")
		if err != nil {
			t.Fatal(err)
		}
		list, err := store.List()
		if err != nil && !errors.Is(err, nats.ErrNoObjectsFound) {
			t.Fatal(err)
		}
		return len(list)
	}
	purge := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			if _, err := s.Purge(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	purge(ids[0])
	before := nc.Stats().InBytes
	purge(ids[1 : many/2]...)
	// The names of all would be 6 KB each time.
	if each := (nc.Stats().InBytes - before) / (many/2 - 1); each > 4000 {
		t.Errorf("the broker has sent %d bytes for each job", each)
	}
	if got := objects(); got != many/2 {
		t.Errorf("%d objects are left, want %d", got, many/2)
	}
	put(ids[0], "changes.patch")
	put(ids[many-1], "late.log")
	purge(slices.Concat(ids[:1], ids[many/2:])...)
	if got := objects(); got != 0 {
		t.Errorf("%d objects are left", got)
	}
}
