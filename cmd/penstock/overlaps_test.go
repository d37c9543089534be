package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/why"
)

// Jobs that change the same file are told of each other while they run, whatever their agents say of it; one
// that ended before is known, too. Nothing of it stays when a job is purged.
func TestJobsThatChangeTheSameFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	f.worker(flagged(f.credentials()[jobs.RoleWorker], []string{"--slots", "3"})...)
	early := f.submit("echo early >> dir0/file0.txt")
	f.run("wait", early)
	one := f.submit("echo one >> dir0/file0.txt; " + untilGoOn)
	two := f.submit("echo two >> dir0/file0.txt; " + untilGoOn)
	// The others have the file in common that they wait for.
	apart := f.submit("echo apart > apart.txt; echo begun; while [ ! -e apart.txt.done ]; do sleep 0.1; done")
	overlaps := func(id string) (other []string) {
		f.Helper()
		var standing why.Standing
		f.must(json.Unmarshal([]byte(f.run("why", "-o", "json", id)), &standing))
		for _, o := range standing.Overlaps {
			other = append(other, o.Job)
		}
		return other
	}
	for _, id := range []string{one, two} {
		f.eventually(60*time.Second, "it is told of both others", func() bool { return len(overlaps(id)) == 2 && count(f.events(id), jobs.OverlapFound) == 2 })
	}
	if said := f.run("why", one); !strings.Contains(said, "beside it:    job "+two+" changes the same files: dir0/file0.txt; the same lines, or lines beside them, of dir0/file0.txt") {
		t.Errorf("why says\n%s", said)
	}
	if said := f.run("logs", two); !strings.Contains(said, "job "+one+" changes the same files: dir0/file0.txt") {
		t.Errorf("the log says\n%s", said)
	}
	if got := overlaps(early); len(got) != 2 {
		t.Errorf("the job that ended knows of %v", got)
	}
	f.runs(apart)
	for _, id := range []string{one, two} {
		f.goOn(id)
		f.run("wait", id)
	}
	f.try("attach", apart, "--", "touch", "apart.txt.done") // which may end with the job
	f.run("wait", apart)
	if got := overlaps(apart); len(got) > 0 {
		t.Errorf("a job that changes another file is told of %v", got)
	}
	f.gapless(f.events(one))
	f.run("job", "purge", two)
	if got := overlaps(one); len(got) != 1 || got[0] != early {
		t.Errorf("after the purge of %s it overlaps with %v", two, got)
	}
	failed := f.submit("echo failed >> dir0/file0.txt; " + untilGoOn + "; exit 1")
	f.eventually(60*time.Second, "a job is told of one that will fail", func() bool { return slices.Contains(overlaps(one), failed) })
	f.goOn(failed)
	f.try("wait", failed)
	if got := overlaps(one); len(got) != 1 || got[0] != early {
		t.Errorf("after %s failed it overlaps with %v", failed, got)
	}
}
