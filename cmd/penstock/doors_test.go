package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// refused fails unless the program ends with that code and says each word.
func (f *fixture) refused(code int, words []string, args ...string) {
	f.Helper()
	out, got, told := f.try(args...)
	if got != code {
		f.Errorf("penstock %v: exit code %d, want %d\n%s%s", args, got, code, out, told)
	}
	for _, word := range words {
		if !strings.Contains(told, word) {
			f.Errorf("penstock %v does not say %q:\n%s", args, word, told)
		}
	}
}

// A data directory belongs to one program at a time. The second is told which program
// has it, and the first does not notice.
func TestDataDirectoryInUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.begin("run", "--repo", f.repo, "--", "sh", "-c", "echo begun; "+stays(4)+"; echo done >new.txt")
	f.eventually(20*time.Second, "the first run runs", func() bool { return strings.Contains(first.log.String(), "begun") })
	inUse := []string{f.data, "in use by penstock run", "hint: ", "--data"}
	f.refused(1, inUse, "run", "--repo", f.repo, "--", "true")
	f.refused(1, inUse, "batch", "run", f.issues(1, func(int) string { return "" }), "--repo", f.repo, "--out", filepath.Join(t.TempDir(), "out"), "--", "true")
	f.refused(1, inUse, "serve", "--listen", "127.0.0.1:0", "--admin", "")
	if code := f.ended(first, 20*time.Second); code != 0 {
		t.Errorf("the first run ended with %d", code)
	}
	f.serve()
	f.refused(1, []string{"in use by penstock serve"}, "serve", "--listen", "127.0.0.1:0", "--admin", "")
	// A running pool does not hinder commands that only need one.
	if got := len(f.list()); got != 1 {
		t.Errorf("%d jobs were made, want that of the first run", got)
	}
}

// Addresses and directories that cannot be had are named at once.
func TestPlacesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	defer l.Close()
	taken := l.Addr().String()
	began := time.Now()
	f.refused(1, []string{taken, "address already in use"}, "serve", "--listen", taken, "--admin", "")
	f.refused(1, []string{taken, "address already in use"}, "serve", "--listen", "127.0.0.1:0", "--admin", taken)
	f.refused(1, []string{taken, "address already in use"}, "serve", "--listen", "127.0.0.1:0", "--admin", taken, "--slots", "1")
	if took := time.Since(began); took > slowtest.Limit(20*time.Second) {
		t.Errorf("it took %v to say so", took)
	}
	file := filepath.Join(t.TempDir(), "file")
	f.must(os.WriteFile(file, nil, 0o644))
	f.refused(1, []string{file}, "--data", file, "run", "--repo", f.repo, "--", "true")
	f.refused(1, []string{"/proc/nowhere"}, "--data", "/proc/nowhere", "run", "--repo", f.repo, "--", "true")
	f.refused(1, []string{"data"}, "--data", file, "doctor")
}

// Without bubblewrap no agent runs; doctor says what to install.
func TestNoBubblewrap(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bin := t.TempDir()
	for _, name := range []string{"penstock", "git", "sh"} {
		path, err := exec.LookPath(name)
		f.must(err)
		f.must(os.Symlink(path, filepath.Join(bin, name)))
	}
	f.env = []string{"PATH=" + bin}
	f.refused(4, []string{"sandbox_unavailable", "bwrap", "bubblewrap", "doctor check bwrap"}, "run", "--repo", f.repo, "--", "true")
	file := f.issues(3, func(int) string { return "" })
	out := filepath.Join(t.TempDir(), "out")
	f.refused(9, []string{"sandbox_unavailable", "bubblewrap"}, "batch", "run", file, "--repo", f.repo, "--out", out, "--max-parallel", "1", "--", "true")
	f.refused(125, []string{"no jail", "hint: doctor check bwrap"}, "sandbox", "run", "--", "true")
	said, code, _ := f.try("doctor")
	if code != 1 || !strings.Contains(said, "bubblewrap") {
		t.Errorf("doctor ended with %d:\n%s", code, said)
	}
	// Once it is there, the same batch is done.
	f.env = nil
	f.run("batch", "run", file, "--repo", f.repo, "--out", out, "--max-parallel", "1", "--redo", "error", "--", "true")
	if got := len(readResults(t, out)); got != 3 {
		t.Errorf("got %d results, want 3", got)
	}
}

// An agent that is unknown, that is not installed, or has no key.
func TestAgentsThatCannotRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.refused(4, []string{"unknown_agent", `"nobody"`, "known are"}, "run", "--repo", f.repo, "--agent", "nobody", "do it")
	f.env = []string{"PENSTOCK_WORKER_CLAUDE=" + filepath.Join(f.tmp, "nowhere")}
	f.refused(4, []string{"agent_missing", "claude"}, "run", "--repo", f.repo, "--agent", "claude", "do it")
	f.env = nil
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH")
	}
	f.refused(4, []string{"model_unauthorized", "API key"}, "run", "--repo", f.repo, "--agent", "claude", "do it")
}

// A results directory belongs to one batch, and to one program at a time.
func TestResultsDirectoryInUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	out := filepath.Join(t.TempDir(), "out")
	file := f.issues(2, func(int) string { return "" })
	args := []string{"batch", "run", file, "--repo", f.repo, "--out", out, "--", "sh", "-c", "echo begun; " + untilGoOn}
	first := f.begin(args...)
	f.eventually(20*time.Second, "the batch runs", func() bool { return len(f.list()) == 2 })
	f.refused(2, []string{out, "process"}, args...)
	for _, rec := range f.list() {
		f.runs(rec.ID)
		f.goOn(rec.ID)
	}
	if code := f.ended(first, 20*time.Second); code != 0 {
		t.Errorf("the first batch ended with %d", code)
	}
	other := f.issues(3, func(int) string { return "" })
	f.refused(2, []string{"another batch", out}, "batch", "run", other, "--repo", f.repo, "--out", out, "--", "true")
	f.refused(2, []string{"is not empty"}, "batch", "run", other, "--repo", f.repo, "--out", f.repo, "--", "true")
	if got := len(readResults(t, out)); got != 2 {
		t.Errorf("%d results are left of 2", got)
	}
}

// A user who stops watching does not stop the job.
func TestAnInterruptedWatcher(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.submit("echo begun; " + untilGoOn)
	for _, verb := range []string{"watch", "wait"} {
		p := f.begin(verb, id)
		f.runs(id)
		time.Sleep(slowtest.Limit(200 * time.Millisecond)) // wait says nothing that could be waited for
		f.must(p.Process.Signal(syscall.SIGINT))
		if code := f.ended(p, 10*time.Second); code != 130 {
			t.Errorf("%s ended with %d, want 130:\n%s", verb, code, p.log)
		}
	}
	f.goOn(id)
	f.run("wait", id)
}

// A run that is interrupted says how it goes on, and keeps its job: the next
// pool on the data directory does it.
func TestAnInterruptedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := f.begin("run", "--repo", f.repo, "--key", "k", "--", "sh", "-c", "echo begun; "+onlyFirst+"; echo done >new.txt")
	f.eventually(20*time.Second, "it runs", func() bool { return strings.Contains(run.log.String(), "begun") })
	f.must(run.Process.Signal(syscall.SIGINT))
	if code := f.ended(run, 15*time.Second); code != 130 || !strings.Contains(run.log.String(), "hint: penstock job cancel") {
		t.Errorf("it ended with %d, want 130:\n%s", code, run.log)
	}
	if left := jailed(f.data); len(left) > 0 {
		t.Errorf("its agents are left: %v", left)
	}
	f.run("run", "--repo", f.repo, "--key", "k", "--", "true")
	list := f.list()
	if len(list) != 1 || list[0].Outcome != jobs.Success || list[0].Counted > 1 {
		t.Fatalf("the job was not kept: %+v", list)
	}
	f.gapless(f.events(list[0].ID))
	if patch := f.run("job", "diff", list[0].ID); !strings.Contains(patch, "+done") {
		t.Errorf("its patch is\n%s", patch)
	}
}
