package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// issues writes a file as gh issue list --json makes it, with issues 1 to n.
func (f *fixture) issues(n int, body func(i int) string) string {
	f.Helper()
	type label struct {
		Name string `json:"name"`
	}
	type issue struct {
		Number int     `json:"number"`
		Title  string  `json:"title"`
		Body   string  `json:"body"`
		URL    string  `json:"url"`
		Labels []label `json:"labels"`
	}
	var list []issue
	for i := 1; i <= n; i++ {
		list = append(list, issue{
			i, fmt.Sprintf("Issue %d", i), body(i), fmt.Sprintf("https://example.com/issues/%d", i), []label{{"bug"}},
		})
	}
	data, err := json.Marshal(list)
	f.must(err)
	file := filepath.Join(f.TempDir(), "issues.json")
	f.must(os.WriteFile(file, data, 0o644))
	return file
}

// listing describes every file below dir: two listings are equal if no file was touched
// in between.
func (f *fixture) listing(dir string) string {
	f.Helper()
	var b strings.Builder
	f.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var sum [sha256.Size]byte
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = sha256.Sum256(data)
		}
		fmt.Fprintf(&b, "%s %s %s %x\n", path, info.Mode(), info.ModTime().Format(time.RFC3339Nano), sum)
		return nil
	}))
	return b.String()
}

// applies fails unless the patch applies to the base and, applied, makes the
// file end with that line.
func (f *fixture) applies(checkout, patch, file, line string) {
	f.Helper()
	f.git("-C", checkout, "apply", "--check", patch)
	f.git("-C", checkout, "apply", patch)
	got, err := os.ReadFile(filepath.Join(checkout, file))
	if err != nil || !strings.HasSuffix(string(got), line+"\n") {
		f.Errorf("%s: %s ends with %q, %v; want %q", patch, file, got, err, line)
	}
	f.git("-C", checkout, "reset", "-q", "--hard")
	f.git("-C", checkout, "clean", "-qfd")
}

// solve is an agent that edits, commits, edits again and leaves that and a
// process behind it.
const solve = `n=$(sed -n 's/.*"number": \([0-9]*\).*/\1/p' $PENSTOCK_ISSUE_FILE)
file=dir$((n % 4))/file$((n % 20)).txt
echo "solved $n" >>$file
mkdir -p solved
echo "commit $n" >solved/$n.txt
git add -A && git -c user.name=A -c user.email=a@example.com commit -qm "solve $n"
echo "and $n" >>solved/$n.txt
(trap '' TERM HUP; setsid sleep 600 >/dev/null 2>&1 </dev/null &)
echo "issue $n done"`

// A hundred issues, sixteen at once: each has its result and a patch that
// applies, and nothing of it all is left but the results.
func TestAHundredIssues(t *testing.T) {
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_LEASE=60s") // sixteen jails that start at once keep a busy machine from renewing
	file := f.issues(100, func(i int) string { return fmt.Sprintf("Line `%d` is \"missing\".", i) })
	out := filepath.Join(t.TempDir(), "results")
	before := f.listing(f.repo)
	f.run("batch", "run", file, "--repo", f.repo, "--max-parallel", "16", "--out", out, "--", "sh", "-c", solve)

	if after := f.listing(f.repo); after != before {
		t.Errorf("the user's repository was touched:\n%s\nwas\n%s", after, before)
	}
	if got := f.git("-C", f.repo, "worktree", "list"); strings.Count(got, "\n") != 1 {
		t.Errorf("git worktree list:\n%s", got)
	}
	if left := f.workspaces(); len(left) > 0 {
		t.Errorf("workspaces are left: %v", left)
	}
	results := readResults(t, out)
	if len(results) != 100 {
		t.Errorf("got %d results, want 100", len(results))
	}
	checkout := filepath.Join(t.TempDir(), "checkout")
	f.git("clone", "-q", f.repo, checkout)
	base := strings.TrimSpace(f.git("-C", f.repo, "rev-parse", "HEAD"))
	predictions := f.predictions(out)
	for i := 1; i <= 100; i++ {
		id := fmt.Sprint(i)
		r := results[id]
		if r.BaseCommit != base || r.FilesChanged != 2 || r.Attempts != 1 {
			t.Errorf("issue %s: base %s, %d files, %d attempts; want %s, 2, 1", id, r.BaseCommit, r.FilesChanged, r.Attempts, base)
		}
		patch := filepath.Join(out, "patches", id+".patch")
		f.applies(checkout, patch, fmt.Sprintf("dir%d/file%d.txt", i%4, i%20), "solved "+id)
		f.applies(checkout, patch, fmt.Sprintf("solved/%d.txt", i), "and "+id)
		text, err := os.ReadFile(patch)
		f.must(err)
		if sum := fmt.Sprintf("%x", sha256.Sum256(text)); predictions[id] != string(text) || r.PatchSHA256 != sum {
			t.Errorf("issue %s: the prediction or the sum of the result is not that of the patch", id)
		}
		log, err := os.ReadFile(filepath.Join(out, "logs", id+".jsonl"))
		f.must(err)
		events := f.decode(string(log))
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 || !bytes.Contains(log, []byte("issue "+id+" done")) {
			t.Errorf("issue %s: its log ends %d times:\n%s", id, got, log)
		}
	}
}

// predictions reads both forms of a results directory's predictions, and
// fails where they say different things.
func (f *fixture) predictions(dir string) map[string]string {
	f.Helper()
	type prediction struct {
		Instance string `json:"instance_id"`
		Patch    string `json:"model_patch"`
		Model    string `json:"model_name_or_path"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "preds.json"))
	f.must(err)
	byID := map[string]prediction{}
	f.must(json.Unmarshal(data, &byID))
	lines, err := os.ReadFile(filepath.Join(dir, "preds.jsonl"))
	f.must(err)
	patches := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		var p prediction
		f.must(json.Unmarshal([]byte(line), &p))
		if byID[p.Instance] != p || p.Model == "" {
			f.Errorf("preds.json says %+v, preds.jsonl %+v", byID[p.Instance], p)
		}
		patches[p.Instance] = p.Patch
	}
	if len(patches) != len(byID) {
		f.Errorf("%d predictions in preds.json, %d in preds.jsonl", len(byID), len(patches))
	}
	return patches
}

// A batch that is interrupted keeps what is done and says so; the same
// command does the rest, and nothing twice.
func TestABatchIsResumed(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]os.Signal{"interrupted": os.Interrupt, "killed": os.Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			file := f.issues(12, func(int) string { return "" })
			out := filepath.Join(t.TempDir(), "results")
			args := []string{
				"batch", "run", file, "--repo", f.repo, "--max-parallel", "3", "--out", out, "--", "sh", "-c",
				solve + "; (setsid sleep 600 &); sleep 1",
			}
			p := f.begin(args...)
			f.eventually(30*time.Second, "some items are done", func() bool { return strings.Count(p.log.String(), "success") >= 3 })
			f.must(p.Process.Signal(stop))
			if code := f.ended(p, 20*time.Second); stop == os.Interrupt && code != 130 {
				t.Errorf("interrupted, it ended with %d, want 130", code)
			}
			early := written(t, out)
			if len(early) < 3 || len(early) == 12 {
				t.Fatalf("%d items were done before: the test shows nothing", len(early))
			}
			f.eventually(60*time.Second, "its agents are gone", func() bool { return len(jailed(f.data)) == 0 })

			f.run(args...)
			late := readResults(t, out)
			if len(late) != 12 {
				t.Errorf("got %d results, want 12", len(late))
			}
			for id, r := range early {
				if late[id].Job != r.Job || late[id].Attempts != r.Attempts {
					t.Errorf("item %s was done again: job %s, then %s", id, r.Job, late[id].Job)
				}
			}
			list := f.list()
			if len(list) != 12 {
				t.Errorf("%d jobs were made for 12 items", len(list))
			}
			for _, rec := range list {
				if rec.State != jobs.Finished || rec.Counted > 1 {
					t.Errorf("item %s: %s, %d attempts count", rec.Item, rec.State, rec.Counted)
				}
			}
			if left := f.workspaces(); len(left) > 0 {
				t.Errorf("workspaces are left: %v", left)
			}
		})
	}
}

// written reads a results directory whose batch may have been killed.
func written(t *testing.T, dir string) map[string]jobs.Result {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]jobs.Result{}
	for line := range strings.Lines(string(data)) {
		var r jobs.Result
		if err := json.Unmarshal([]byte(line), &r); err == nil {
			found[r.ID] = r
		}
	}
	return found
}

// begin starts the program and does not wait for anything.
func (f *fixture) begin(args ...string) *program {
	f.Helper()
	p := &program{Cmd: f.command(args...), log: &syncBuffer{}}
	p.Stdout, p.Stderr = p.log, p.log
	f.must(p.Start())
	f.Cleanup(func() {
		if p.ProcessState == nil {
			p.kill()
		}
		f.note(p, args)
	})
	return p
}

// ended waits for the end of the program and returns its exit code; -1 where
// a signal ended it.
func (f *fixture) ended(p *program, limit time.Duration) int {
	f.Helper()
	over := make(chan error, 1)
	go func() { over <- p.Wait() }()
	var err error
	ended := slowtest.Eventually(limit, 10*time.Millisecond, func() bool {
		select {
		case err = <-over:
			return true
		default:
			return false
		}
	})
	if !ended {
		_ = p.Process.Kill()
		err := <-over
		f.Fatalf("penstock %v had not ended after %v (%v):\n%s", p.Args[1:], limit, err, p.log)
	}
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		f.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}
