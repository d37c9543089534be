package main

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// The data of one customer is counted first and removed when that is confirmed, also where the
// command was killed in the middle: all of it, and nothing of others.
func TestPurgeSelection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "4", "--queues", "default,nightly")
	secret := "planted-" + rand.Text()
	var ids, others []string
	for range 6 {
		ids = append(ids,
			f.submit("echo "+secret+" >new.txt", "--label", "owner=ann", "--label", "who="+secret),
			f.submit("echo "+secret, "--label", "owner=ann", "--label", "who="+secret, "--queue", "nightly"))
	}
	others = append(others, f.submit("true", "--label", "owner=bob"), f.submit("true", "--label", "owner=annette"), f.submit("true"))
	f.run(append([]string{"wait", "--timeout", patience(120)}, append(ids, others...)...)...)
	running := f.submit("echo begun; sleep 600", "--label", "owner=ann")
	f.runs(running)
	refuses := func(code int, told string, args ...string) {
		t.Helper()
		before := len(f.holding(secret))
		out, got, said := f.try(append([]string{"job", "purge"}, args...)...)
		if got != code || out != "" || !strings.Contains(said, told) {
			t.Errorf("%q: %d, %s%s; want %d and %q", args, got, out, said, code, told)
		}
		if after := len(f.holding(secret)); after != before || before == 0 {
			t.Errorf("%q: the secret is in %d streams, and was in %d", args, after, before)
		}
	}
	refuses(cli.ExitUsage, "name jobs, or select some")
	refuses(cli.ExitUsage, "name jobs, or select some", ids[0], "--queue", "nightly")
	refuses(cli.ExitUsage, "neither a time", "--finished-before", "soon")
	refuses(cli.ExitUnexpected, "nothing was removed", "--label", "owner=ann", "--yes")
	refuses(cli.ExitNotFound, "no job is selected", "--label", "owner=ann", "--finished-before", "1h", "--yes")
	refuses(cli.ExitUsage, "12 jobs (6 of queue default, 6 of queue nightly)", "--label", "owner=ann", "--finished-before", time.Now().Format(time.RFC3339Nano))
	if listed := f.run("job", "purge", "--queue", "nightly", "--dry-run", "-o", "id"); strings.Count(listed, "\n") != 6 {
		t.Errorf("a dry run lists\n%s", listed)
	}
	f.run("job", "purge", "--queue", "nightly", "--yes")
	if listed := f.run("job", "ls", "-o", "id", "--label", "owner=ann"); strings.Count(listed, "\n") != 7 {
		t.Errorf("without the jobs of one queue there are\n%s", listed)
	}
	now := time.Now().Format(time.RFC3339Nano)
	for _, after := range []time.Duration{20, 60} {
		killed := f.command("job", "purge", "--label", "owner=ann", "--finished-before", now, "--yes")
		f.must(killed.Start())
		time.Sleep(after * time.Millisecond)
		_ = killed.Process.Kill()
		_ = killed.Wait() // killed, or done
	}
	if out, code, said := f.try("job", "purge", "--label", "owner=ann", "--finished-before", now, "--yes"); code != 0 && code != cli.ExitNotFound {
		t.Errorf("once more: %d, %s%s", code, out, said)
	}
	if left := f.holding(secret); len(left) > 0 {
		t.Errorf("the secret is in %q", left)
	}
	for _, id := range append(others, running) {
		if rec := f.record(id); rec.ID != id || rec.Purging {
			t.Errorf("another one's job is %+v", rec)
		}
	}
	f.cancelled(running)
}
