package api

import (
	"context"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A report reads no more of patches than it has room for, whatever agents have written. The
// others are in it by their records.
func TestAReportReadsAsMuchAsItHasRoomFor(t *testing.T) {
	t.Parallel()
	ctx, store := jobstest.Context(t), jobstest.Store(t, jobstest.Start(t).Connect())
	var list []jobs.Record
	for range 4 {
		rec := jobs.Record{ID: jobs.NewID(), Epoch: 1, State: jobs.Finished, Outcome: jobs.Success}
		if _, err := store.Put(ctx, rec.ID, rec.Epoch, jobs.PatchName, strings.NewReader("diff --git a/f b/f\nnew file mode 100644\n"+strings.Repeat("#", 1<<20))); err != nil {
			t.Fatal(err)
		}
		list = append(list, rec)
	}
	reader := reportReader{results: func(_ context.Context, rec jobs.Record) (jobs.Result, error) { return rec.Result(), nil }, store: store}
	reader.room.Store(5 << 19)
	entries, err := reader.entries(ctx, list)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, entry := range entries {
		if entry.Outcome != jobs.Success {
			t.Errorf("a job is in the report as %+v", entry)
		}
		if entry.Patch != nil {
			read++
		}
	}
	if read > 2 {
		t.Errorf("%d patches of 1 MiB were read, and there was room for 2.5 MiB", read)
	}
}
