package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// reviewed runs a batch whose items each write a file of their own and have a check, and returns
// its results directory.
func (f *fixture) reviewed(items int) string {
	f.Helper()
	var lines strings.Builder
	for i := range items {
		title, err := json.Marshal(strings.ToValidUTF8(evil, "") + fmt.Sprint(i))
		f.must(err)
		fmt.Fprintf(&lines, `{"item":"i%[1]d","prompt":%[2]s,"check":["echo checked; exit 0"],"agent":{"name":"command","command":["sh","-c","printf 'new \\033[2Jline' > out%[1]d"]}}`+"\n", i, title)
	}
	file, out := filepath.Join(f.TempDir(), "items.jsonl"), filepath.Join(f.TempDir(), "out")
	f.must(os.WriteFile(file, []byte(lines.String()), 0o644))
	f.run("batch", "run", file, "--repo", f.repo, "--out", out)
	return out
}

// At a terminal one result after the other is shown, and becomes what is typed: the work tree
// has it, a branch, nothing. What is not decided is left for the next call.
func TestReviewOnATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	out := f.reviewed(5)
	d := f.draw(100, 40, "review", out, "--dir", f.repo)
	steps := []struct{ keys, shows string }{{"d\nw\n", "delivered"}, {"b\n", "delivered"}, {"x\na\n", "accepted"}, {"r\n\n", "rejected"}, {"q\n", "1 of 5 results are left"}}
	at := 0
	for i, step := range steps {
		d.shows(at, fmt.Sprintf("%d of 5", i+1))
		d.shows(at, "+new")
		d.shows(at, "q: quit?")
		at = d.types(step.keys)
		d.shows(at, step.shows)
	}
	if code := <-d.code; code != 0 {
		t.Errorf("it ends with %d:\n%s", code, d.told.String())
	}
	for _, want := range []string{"exit 0", "checked", "$0.00", "job "} {
		if !strings.Contains(d.told.String(), want) {
			t.Errorf("%q is not shown:\n%s", want, d.told.String())
		}
	}
	for _, bad := range []string{"\x1b]0;title", "\x1b[2J", "\u009b", "\x9b\x08", "\nFORGED", "\rFORGED", "\u202e"} {
		if strings.Contains(d.told.String(), bad) {
			t.Errorf("the terminal is told %q", bad)
		}
	}
	f.must(d.slave.Close())
	if staged := strings.Fields(f.git("-C", f.repo, "diff", "--cached", "--name-only")); len(staged) != 1 {
		t.Errorf("the work tree has %v", staged)
	}
	if got := f.branches(f.repo); len(got) != 1 {
		t.Errorf("there are the branches %v", got)
	}
	for state, want := range map[string]int{"unreviewed": 1, "accepted": 1, "rejected": 1, "delivered": 2} {
		if got := strings.Fields(f.run("job", "ls", "--review", state, "-o", "id")); len(got) != want {
			t.Errorf("%s are %v, want %d", state, got, want)
		}
	}
}

// Without a terminal the results are listed, and flags decide.
func TestReviewWithoutATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	out := f.reviewed(3)
	ids := strings.Fields(f.run("review", out, "-o", "id"))
	if len(ids) != 3 || len(strings.Fields(f.run("review", "-o", "id"))) != 3 {
		t.Fatalf("the results are %v", ids)
	}
	var done []jobs.Record
	f.must(json.Unmarshal([]byte(f.run("review", "--accept", ids[0], "--deliver", "branch", "--dir", f.repo, "-o", "json")), &done))
	if len(done) != 1 || done[0].Reviewed() != jobs.Delivered || done[0].Review.By != "cli" || len(f.branches(f.repo)) != 1 {
		t.Errorf("accepted: %+v, branches %v", done, f.branches(f.repo))
	}
	// The same again makes no second branch.
	f.run("review", "--accept", ids[0], "--deliver", "branch", "--dir", f.repo)
	// This agent has no conversation to go on with; that is said, and it is rejected all the same.
	_, code, said := f.try("review", "--reject", ids[1], "--comment", "use tabs")
	if rec := f.record(ids[1]); code != 3 || !strings.Contains(said, "does not go on") || rec.Reviewed() != jobs.Rejected || rec.Review.Comment != "use tabs" {
		t.Errorf("rejected: %d %s, %+v", code, said, rec.Review)
	}
	// What is rejected is not brought in with the rest of its batch.
	if got := strings.Fields(f.run("batch", "export", done[0].Batch, "--patches", filepath.Join(f.TempDir(), "patches"), "-o", "id")); len(got) != 2 || slices.Contains(got, ids[1]) {
		t.Errorf("exported are %v, without %s", got, ids[1])
	}
	// The branch that is there is the one that an export makes.
	if f.run("batch", "export", done[0].Batch, "--branches", "--dir", f.repo); len(f.branches(f.repo)) != 2 {
		t.Errorf("branches are %v, want 2", f.branches(f.repo))
	}
	if left := strings.Fields(f.run("review", out, "-o", "id")); len(left) != 1 || left[0] != ids[2] {
		t.Errorf("left are %v", left)
	}
	for _, args := range [][]string{{out, "--accept", ids[2]}, {"--comment", "x"}, {"a b"}} {
		if _, code, _ := f.try(append([]string{"review"}, args...)...); code != 2 {
			t.Errorf("%v ends with %d", args, code)
		}
	}
	if _, code, _ := f.try("review", "--accept", "0198c0de"); code != 5 {
		t.Errorf("a job that is not there: %d", code)
	}
}
