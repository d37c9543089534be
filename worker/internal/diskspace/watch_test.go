package diskspace

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTally(t *testing.T) {
	t.Parallel()
	all := NewTally()
	all.Set("a", &jobs.DiskUse{Bytes: 5, Inodes: 1})
	all.Set("b", &jobs.DiskUse{Bytes: 7, Inodes: 2})
	if got := all.Set("a", &jobs.DiskUse{Bytes: 1, Inodes: 1}); got != (jobs.DiskUse{Bytes: 8, Inodes: 3}) {
		t.Errorf("together %+v", got)
	}
	if got := all.Set("b", nil); got != (jobs.DiskUse{Bytes: 1, Inodes: 1}) {
		t.Errorf("without the second %+v", got)
	}
}

// The end of a watch measures once more, and takes the workspace out of the sum.
func TestTheEndOfAWatch(t *testing.T) {
	t.Parallel()
	var sums []jobs.DiskUse
	var grown []event.Event
	size := jobs.DiskUse{Bytes: 16 << 20, Inodes: 3}
	w := Watch{
		Name: "a", Tally: NewTally(), Size: func(context.Context) (int64, int64) { return size.Bytes, size.Inodes },
		Report: func(sum jobs.DiskUse) { sums = append(sums, sum) }, Put: func(events ...event.Event) { grown = append(grown, events...) },
	}
	if use := w.Begin(t.Context())(); use != size {
		t.Errorf("measured %+v", use)
	}
	if want := []jobs.DiskUse{size, {}}; !slices.Equal(sums, want) {
		t.Errorf("reported %+v, want %+v", sums, want)
	}
	if len(grown) != 1 || grown[0].Payload != event.Payload(event.WorkspaceGrown(size)) {
		t.Errorf("the session is told %+v", grown)
	}
}
