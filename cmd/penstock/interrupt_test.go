package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// firstOnly is an agent that does the first issue at once, and no other one.
const firstOnly = `grep -q '"number": 1\b' $PENSTOCK_ISSUE_FILE || exec sleep 600`

// A batch in a pool that runs says how many jobs go on when it is interrupted, and
// how to watch and cancel them; with --cancel-on-interrupt none does.
func TestAnInterruptedBatchInAPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pool, _ := f.serve("--slots", "5")
	file := f.issues(5, func(int) string { return "" })
	out := filepath.Join(t.TempDir(), "out")
	begin := func(out string, args ...string) *program {
		p := f.begin(append(append([]string{"batch", "run", file, "--repo", f.repo, "--out", out}, args...), "--", "sh", "-c", firstOnly)...)
		f.eventually(30*time.Second, "the first item is done and others run", func() bool {
			return strings.Count(f.text(filepath.Join(out, "results.jsonl")), "\n") == 1 && f.states()[jobs.Executing] == 4
		})
		return p
	}
	interrupt := func(p *program) { f.must(p.Process.Signal(os.Interrupt)) }

	p := begin(out)
	interrupt(p)
	if code := f.ended(p, 20*time.Second); code != 130 {
		t.Errorf("it ended with %d, want 130", code)
	}
	for _, words := range []string{"4 jobs continue in the pool: 4 run, 0 wait", "penstock batch ls", "penstock batch cancel " + out, "the same command again"} {
		if !strings.Contains(p.log.String(), words) {
			t.Errorf("it does not say %q:\n%s", words, p.log)
		}
	}
	if n := f.states()[jobs.Executing]; n != 4 {
		t.Errorf("%d jobs run, want those 4 that did", n)
	}
	f.run("batch", "cancel", out)

	// With the flag they are cancelled, and the same command makes them anew.
	again := filepath.Join(t.TempDir(), "again")
	p = begin(again, "--cancel-on-interrupt")
	interrupt(p)
	if code := f.ended(p, 20*time.Second); code != 130 || !strings.Contains(p.log.String(), "4 jobs were cancelled") {
		t.Errorf("it ended with %d, want 130, and 4 cancelled:\n%s", code, p.log)
	}
	f.eventually(20*time.Second, "no job is left", func() bool { return f.states()[jobs.Finished] == 10 })
	p = f.begin("batch", "run", file, "--repo", f.repo, "--out", again, "--", "sh", "-c", firstOnly)
	f.eventually(20*time.Second, "those 4 run again, and the first does not", func() bool { return f.states()[jobs.Executing] == 4 && len(f.list()) == 14 })
	f.run("batch", "cancel", again)
	f.ended(p, 20*time.Second)

	// A second interrupt ends the command although the pool does not answer. It would
	// not where these tests run in the background of a shell: what is ignored stays so
	// in the programs that are started, but what is caught does not.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)
	silent := filepath.Join(t.TempDir(), "silent")
	p = begin(silent, "--cancel-on-interrupt")
	exectest.Pause(t, pool.Process)
	interrupt(p)
	f.eventually(10*time.Second, "it says what it does", func() bool {
		return strings.Contains(p.log.String(), "(interrupt again to leave them and exit at once)")
	})
	interrupt(p)
	if code := f.ended(p, 5*time.Second); code != -1 {
		t.Errorf("interrupted twice, it ended with %d, want the signal's", code)
	}
	f.must(pool.Process.Signal(syscall.SIGCONT))
	// What it had asked for may still be done, or may not.
	if _, code, said := f.try("batch", "cancel", silent); code != 0 && code != cli.ExitNotFound {
		t.Errorf("batch cancel ended with %d: %s", code, said)
	}
}

// states counts the jobs of the pool.
func (f *fixture) states() map[jobs.State]int {
	f.Helper()
	counts := map[jobs.State]int{}
	for _, rec := range f.list() {
		counts[rec.State]++
	}
	return counts
}

// text is what a file holds; nothing where it is not there yet.
func (f *fixture) text(name string) string {
	data, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	return string(data)
}
