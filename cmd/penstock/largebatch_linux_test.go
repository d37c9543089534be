package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
)

// A batch of hundreds of items is killed again and again in a pool that goes on. Each time the
// same command does the rest: in the end each item has one job, whose agent ran once, and one
// result. The memory of the client does not follow the number of items.
// PENSTOCK_TEST_BATCH_ITEMS and PENSTOCK_TEST_BATCH_KILLS say how many there are.
func TestALargeBatchIsKilled(t *testing.T) {
	t.Parallel()
	items, kills := size("PENSTOCK_TEST_BATCH_ITEMS", 300), size("PENSTOCK_TEST_BATCH_KILLS", 3)
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_LEASE=1m") // the worker lives, however busy the machine is
	f.serve("--slots", "8")
	var lines strings.Builder
	for i := range items {
		fmt.Fprintf(&lines, "{\"item\":\"item-%d\",\"prompt\":\"item-%d\"}\n", i, i)
	}
	file, out := filepath.Join(t.TempDir(), "items.jsonl"), filepath.Join(t.TempDir(), "out")
	f.must(os.WriteFile(file, []byte(lines.String()), 0o644))
	args := []string{"batch", "run", file, "--out", out, "--isolation", "none", "--", "true"}
	done := func() int {
		data, err := os.ReadFile(filepath.Join(out, "results.jsonl"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(data), "\n")
	}
	began, most := time.Now(), 0.0
	for n := range kills {
		p := f.begin(args...)
		after := done() + rand.IntN(max(1, (items-done())/(kills-n+1))) + 1
		f.eventually(20*time.Minute, "some items are done", func() bool { return done() >= after })
		peak, err := measure.MostResident(p.Process.Pid)
		f.must(err)
		most = max(most, peak)
		f.must(p.Process.Signal(syscall.SIGKILL))
		f.ended(p, time.Minute)
		t.Logf("killed with %d of %d results", done(), items)
	}
	early := written(t, out)
	if len(early) == items {
		t.Error("all items were done before the last kill: the test shows little")
	}
	p := f.begin(args...)
	over := make(chan error, 1)
	go func() { over <- p.Wait() }()
	for waiting := true; waiting; {
		select {
		case err := <-over:
			f.must(err)
			waiting = false
		case <-time.After(20 * time.Millisecond):
			if peak, err := measure.MostResident(p.Process.Pid); err == nil { // else it has ended
				most = max(most, peak)
			}
		}
	}
	t.Logf("%d items, %d kills, %.0f s; client's memory %.1f MiB at most", items, kills, time.Since(began).Seconds(), most/(1<<20))
	if most > 100<<20 {
		t.Errorf("the client had %.1f MiB of memory, want 100 at most", most/(1<<20))
	}
	late := readResults(t, out)
	for id, r := range early {
		if late[id].Job != r.Job {
			t.Errorf("item %s was done again: job %s, then %s", id, r.Job, late[id].Job)
		}
	}
	var want []string
	for i := range items {
		want = append(want, fmt.Sprint("item-", i))
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(late)); !slices.Equal(got, want) || done() != items {
		t.Errorf("%d results in %d lines, want %d", len(late), done(), items)
	}
	found := map[string]bool{}
	for line := range strings.Lines(f.run("job", "ls", "-o", "jsonl", "--limit", "1000000")) {
		var rec jobs.Record
		f.must(json.Unmarshal([]byte(line), &rec))
		if found[rec.Item] || rec.Attempt != 1 || rec.Outcome != jobs.Success {
			t.Errorf("item %s: %s after %d attempts, or another job of it", rec.Item, rec.Outcome, rec.Attempt)
		}
		found[rec.Item] = true
	}
	if len(found) != items {
		t.Errorf("%d items have jobs, want %d", len(found), items)
	}
}
