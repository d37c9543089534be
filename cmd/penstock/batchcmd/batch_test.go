package batchcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a batch of items in a results directory; said takes what it reports.
func open(t *testing.T, path string, said io.Writer, items map[string]jobs.Job) *batch {
	t.Helper()
	m := results.Manifest{ID: jobs.NewID()}
	for id := range items {
		m.Items = append(m.Items, results.Item{ID: id})
	}
	dir, err := results.Open(path, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg, format, progress := cli.Defaults(), cli.Table, cli.ProgressPlain
	w := console.New(said, func(string) string { return "" })
	shell := cli.Shell{Out: w, Err: w, Config: &cfg, Format: &format, Progress: &progress}
	return &batch{shell: shell, dir: dir, where: path, items: items}
}

// end stores and counts the result of an item.
func (b *batch) end(t *testing.T, counts *tally, item string, reason jobs.Reason) error {
	t.Helper()
	r := jobs.Result{ID: item, Job: "job-" + item, Outcome: jobs.Success}
	if reason != "" {
		r.Outcome, r.Reason, r.Message = jobs.Reasons[reason].Outcome, reason, "because of that"
	}
	none := func(func(jobs.Event, error) bool) {}
	if err := b.dir.Add(t.Context(), r, strings.NewReader(""), none); err != nil {
		t.Fatal(err)
	}
	return counts.count(r)
}

// A batch stops at the bound of failures, and when all that is left would end like the
// last item; not while something else is left, or nothing at all.
func TestTally(t *testing.T) {
	t.Parallel()
	claude, other := jobs.Job{Agent: jobs.Agent{Name: "claude"}}, jobs.Job{Agent: jobs.Agent{Name: "codex"}}
	for _, tt := range []struct {
		name  string
		items map[string]jobs.Job
		max   int
		ends  []jobs.Reason // of the items 1, 2, …; empty: success
		stops int           // at this end; 0: never
	}{
		{"failures below the bound", map[string]jobs.Job{"1": claude, "2": claude, "3": claude}, 2, []jobs.Reason{jobs.AgentFailed, "", ""}, 0},
		{"failures at the bound", map[string]jobs.Job{"1": claude, "2": claude, "3": claude, "4": claude}, 2, []jobs.Reason{jobs.AgentFailed, "", jobs.AgentFailed}, 3},
		{"all would end so", map[string]jobs.Job{"1": claude, "2": claude}, 0, []jobs.Reason{jobs.Unauthorized}, 1},
		{"another agent is left", map[string]jobs.Job{"1": claude, "2": other}, 0, []jobs.Reason{jobs.Unauthorized}, 0},
		{"nothing is left", map[string]jobs.Job{"1": claude}, 0, []jobs.Reason{jobs.Unauthorized}, 0},
		{"one worker after a success", map[string]jobs.Job{"1": claude, "2": claude, "3": claude, "4": claude, "5": claude}, 0,
			[]jobs.Reason{"", jobs.SandboxMissing, jobs.SandboxMissing, jobs.SandboxMissing}, 4},
		{"a success in between", map[string]jobs.Job{"1": claude, "2": claude, "3": claude, "4": claude, "5": claude, "6": claude}, 0,
			[]jobs.Reason{"", jobs.SandboxMissing, jobs.SandboxMissing, "", jobs.SandboxMissing}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := open(t, t.TempDir(), io.Discard, tt.items)
			counts := newTally(b, runFlags{maxFailures: tt.max}, results.Totals{})
			for i, reason := range tt.ends {
				err := b.end(t, counts, fmt.Sprint(i+1), reason)
				if stopped := cli.Code(err) == cli.ExitStopped; stopped != (i+1 == tt.stops) || err != nil && !stopped {
					t.Errorf("after end %d: %v; want it to stop at %d", i+1, err, tt.stops)
				}
			}
		})
	}
}

// Lines say how each item ended, and the last two where the results are.
func TestLines(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	b := open(t, t.TempDir(), &said, map[string]jobs.Job{"1": {}, "2": {}})
	counts := newTally(b, runFlags{}, results.Totals{})
	shown := newDisplay(b.shell, b.dir.Missing(), counts)
	shown.note(jobs.Record{ID: "job-2", Item: "2", State: jobs.Executing})
	r := jobs.Result{ID: "1", Job: "job-1", Outcome: jobs.Failure, Reason: jobs.AgentFailed, Message: "no tests\nat all", FilesChanged: 3, CostUSD: 0.5}
	if err := counts.count(r); err != nil {
		t.Fatal(err)
	}
	shown.ended(r)
	if l, ok := shown.(*lines); !ok || l.status("job-3", true) != "2 running, 1 failure, $0.50" {
		t.Errorf("the status is wrong: %#v", shown)
	}
	shown.finished(transcript.BatchEnd{State: "completed", Dir: "out", Done: 1, Items: 2, Outcomes: map[jobs.Outcome]int{jobs.Failure: 1}})
	if err := b.shell.Err.Close(); err != nil {
		t.Fatal(err)
	}
	want := "1            failure     0.0s  3 files  agent_failed: no tests …\n" +
		"penstock: batch completed: 1 of 2 done: 1 failure\n" +
		"penstock: results in out (report.html, report.md, patches/, logs/)\n"
	if said.String() != want {
		t.Errorf("got\n%swant\n%s", &said, want)
	}
}

// repository makes a repository with one commit, and returns its address and the commit.
func repository(t *testing.T) (dir, commit string) {
	t.Helper()
	dir = t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", dir}} {
		gitIn(t, dir, args...)
	}
	return dir, gitIn(t, dir, "rev-parse", "HEAD")
}

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// All items of a repository begin from the commit that its branch had at the start of the
// batch, also when the branch has moved before the batch continues.
func TestItemsBeginFromThePinnedCommits(t *testing.T) {
	t.Parallel()
	one, first := repository(t)
	two, second := repository(t)
	items := func() map[string]jobs.Job {
		return map[string]jobs.Job{"1": {Repo: jobs.Repo{URL: one}}, "2": {Repo: jobs.Repo{URL: two}}, "3": {Repo: jobs.Repo{URL: one}}}
	}
	b := open(t, filepath.Join(t.TempDir(), "out"), io.Discard, items())
	for range 2 {
		if err := b.pin(t.Context(), runFlags{}); err != nil {
			t.Fatal(err)
		}
		for item, want := range map[string]string{"1": first, "2": second, "3": first} {
			if got := b.items[item].Repo.Commit; got != want {
				t.Errorf("item %s begins from %s, want %s", item, got, want)
			}
		}
		gitIn(t, one, "commit", "-q", "--allow-empty", "-m", "two")
		b.items = items() // as the same command reads them again
	}
	b.items = map[string]jobs.Job{"1": {Repo: jobs.Repo{URL: filepath.Join(one, "missing")}}, "2": {Repo: jobs.Repo{URL: filepath.Join(two, "missing")}}}
	err := b.pin(t.Context(), runFlags{})
	if cli.Code(err) != cli.ExitUsage || strings.Count(err.Error(), "missing") < 2 {
		t.Errorf("got %v, want each repository without a commit", err)
	}
	if follow := b.pin(t.Context(), runFlags{follow: true}); follow != nil {
		t.Error(errors.Join(errors.New("with --follow no commit is needed"), follow))
	}
}
