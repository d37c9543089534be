package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/chaos"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// errNoHistory says that this copy of the repository does not have the release before.
var errNoHistory = errors.New("the repository has no such commit")

// previous builds the program of the release before, which deploy/previous names, from the
// history of the repository.
var previous = sync.OnceValues(func() (program string, err error) {
	commit, err := os.ReadFile("../../deploy/previous")
	if err != nil {
		return "", err
	}
	source, err := exec.Command("git", "-C", "../..", "archive", strings.TrimSpace(string(commit))).Output()
	if err != nil {
		return "", fmt.Errorf("%w as deploy/previous names: %w", errNoHistory, err)
	}
	dir := filepath.Join(builtDir, "previous")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	unpack := exec.Command("tar", "-xC", dir)
	unpack.Stdin = bytes.NewReader(source)
	program = filepath.Join(builtDir, "penstock-previous")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./cmd/penstock")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{unpack, build} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	return program, nil
})

// requirePrevious skips the test where the release before cannot be had.
func requirePrevious(t *testing.T) string {
	t.Helper()
	program, err := previous()
	if errors.Is(err, errNoHistory) {
		skip(t, "history", "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Server, worker and client of this release and of the one before work together in every
// combination.
func TestReleasesWorkTogether(t *testing.T) {
	t.Parallel()
	requireJail(t)
	old := requirePrevious(t)
	name := map[string]string{"": "now", old: "before"}
	for n := range 6 { // in binary: all but those of one release alone
		pick := func(bit int) string { return []string{"", old}[(n+1)>>bit&1] }
		server, worker, client := pick(0), pick(1), pick(2)
		t.Run(fmt.Sprintf("server %s, worker %s, client %s", name[server], name[worker], name[client]), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.program = server
			f.serve()
			f.program = worker
			f.worker("--slots", "3")
			f.program = client
			f.together()
		})
	}
}

// together does with the fixture's program what clients do.
func (f *fixture) together() {
	f.Helper()
	id := f.submit("echo once >new.txt", "--key", "k")
	if again := f.submit("false", "--key", "k"); again != id {
		f.Errorf("the key of job %s leads to %s", id, again)
	}
	endless := f.submit("echo begun; sleep 600")
	f.runs(endless)
	f.run("job", "cancel", endless)
	later := f.submit("true", "--queue", "later") // which no worker serves
	f.run("queue", "pause", "later")
	if said := f.run("why", later); !strings.Contains(said, "paused") {
		f.Errorf("why the job of a paused queue waits: %s", said)
	}
	items := filepath.Join(f.TempDir(), "items.jsonl")
	var lines strings.Builder
	for i := range 10 {
		fmt.Fprintf(&lines, "{\"item\":\"item-%d\",\"prompt\":\"do it\"}\n", i)
	}
	f.must(os.WriteFile(items, []byte(lines.String()), 0o600))
	out := filepath.Join(f.TempDir(), "out")
	f.run("batch", "run", items, "--repo", f.repo, "--out", out, "--", "sh", "-c", `echo "$PENSTOCK_PROMPT" >new.txt`)
	for item, r := range readResults(f.T, out) {
		if r.Outcome != jobs.Success || r.FilesChanged != 1 {
			f.Errorf("%s: %s %s, %d files", item, r.Outcome, r.Message, r.FilesChanged)
		}
	}
	f.run("wait", "--timeout", patience(60), id)
	if _, code, _ := f.try("wait", "--timeout", patience(60), endless); code != cli.ExitFailure {
		f.Errorf("a cancelled job ends with exit code %d", code)
	}
	f.kept(map[string]string{id: "+once"})
	list := f.list()
	if len(list) != 13 {
		f.Errorf("%d jobs, want 13", len(list))
	}
	for _, rec := range list {
		if rec.ID == later {
			continue
		}
		events := f.events(rec.ID)
		f.gapless(events)
		if n := count(events, jobs.JobFinished); n != 1 || rec.State != jobs.Finished {
			f.Errorf("job %s is %s, and ended %d times", rec.ID, rec.State, n)
		}
	}
}

// A rolling restart under load, forth and back, with kills in between, loses nothing and
// does nothing twice.
func TestARollingRestartLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var report chaos.Report
	f.must(json.Unmarshal([]byte(f.run("chaos", "-o", "json", "--dir", filepath.Join(t.TempDir(), "pool"), "--previous", requirePrevious(t),
		"--workers", "3", "--jobs", "25", "--faults", "25", "--kinds", "change release,kill worker,kill broker")), &report))
	if report.Results != 25 || report.Faults["change release"] == 0 {
		t.Errorf("%d results after %v, want 25 and changes of the release", report.Results, report.Faults)
	}
}
