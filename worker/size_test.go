package worker

import (
	"encoding/json"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// What a workspace takes is in the result; the session is told when it has
// grown by much, and the worker knows the sum of those that run.
func TestWorkspacesAreMeasured(t *testing.T) {
	t.Parallel()
	f := newField(t)
	sums := make(chan jobs.DiskUse, 1000)
	f.cfg.Hooks.Workspaces = func(bytes, inodes int64) { sums <- jobs.DiskUse{Bytes: bytes, Inodes: inodes} }
	rec, events := f.run(f.job("head -c 20000000 /dev/urandom > .git/large; mkdir d; touch d/f"))
	close(sums)
	result, err := f.eye.store.Result(t.Context(), rec)
	f.must(err)
	if rec.Outcome != jobs.Success || result.Disk.Bytes < 20_000_000 || result.Disk.Bytes > 40_000_000 || result.Disk.Inodes < 5 {
		t.Errorf("%s %s; the result says %+v", rec.Outcome, rec.Message, result.Disk)
	}
	var told []jobs.DiskUse
	for _, e := range events {
		if e.Kind == jobs.WorkspaceGrew {
			var use jobs.DiskUse
			f.must(json.Unmarshal(e.Data, &use))
			told = append(told, use)
		}
	}
	if len(told) == 0 || len(told) > 2 || told[len(told)-1].Bytes < 16<<20 {
		t.Errorf("the session was told %+v", told)
	}
	var last, most jobs.DiskUse
	for last = range sums {
		if last.Bytes > most.Bytes {
			most = last
		}
	}
	if most != result.Disk || last != (jobs.DiskUse{}) {
		t.Errorf("the sum was %+v at most and %+v in the end; want %+v and nothing", most, last, result.Disk)
	}
}
