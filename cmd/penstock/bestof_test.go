package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

// Each item is run several times. The batch succeeds if one try of each item does; the best
// is marked in the reports of the directory and of the pool, and is what is exported,
// applied and predicted.
func TestTheBestOfSeveralTries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	f.worker("--slots", "2")
	counts, out := t.TempDir(), filepath.Join(t.TempDir(), "results")
	// The nth run of issue 1 writes a long answer, then a short one, then fails; the runs of
	// issue 2 fail but for the last; those of issue 3 all fail their check.
	agent := `issue=$(grep -o '[0-9]' "$PENSTOCK_ISSUE_FILE" | head -n 1); n=1
until mkdir ` + counts + `/$issue-$n; do n=$((n+1)); done
case $issue-$n in
1-1) printf 'one\ntwo\nthree\n' >answer1;;
1-2) echo short >answer1;;
2-3) printf 'one\ntwo\n' >answer2;;
3-*) echo wrong >other;;
*) exit 1;;
esac`
	run := []string{"batch", "run", f.issues(3, func(int) string { return "x" }), "--repo", f.repo, "--best-of", "3", "--backend", "none",
		"--check", "ls answer*", "--out", out, "--limit", "2"}
	agent2 := []string{"--", "sh", "-c", agent}
	said, code, told := f.try(after(append(run, "--dry-run", "-o", "id"), agent2)...)
	if code != 0 || said != "1-try1\n1-try2\n1-try3\n2-try1\n2-try2\n2-try3\n" || !strings.Contains(told, "2 of 3 items selected") {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	if said, code, told = f.try(after(run, agent2)...); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	short, last := "", ""
	for _, arg := range []string{out, results.BatchID(out)} {
		var r report.Report
		said, code, told := f.try("batch", "report", arg, "-o", "json")
		if err := json.Unmarshal([]byte(said), &r); code != 0 || err != nil {
			t.Fatalf("exit code %d, err %v\n%s%s", code, err, said, told)
		}
		if r.State != "completed" || r.Tries == nil || *r.Tries != (report.Tries{Items: 2, Runs: 6, Solved: 2, Succeeded: 3, Failed: 3}) || len(r.Pairs) > 0 {
			t.Errorf("report of %s: %s, tries %+v, overlaps %v", arg, r.State, r.Tries, r.Pairs)
		}
		var best []report.Item
		for _, row := range r.Rows {
			if row.Best {
				best = append(best, row)
			}
		}
		// Those of the pool are in the order of their submission, and several are submitted at once.
		slices.SortFunc(best, func(a, b report.Item) int { return strings.Compare(a.Of, b.Of) })
		if len(best) != 2 || best[0].Of != "1" || best[0].Added != 1 || best[1].Of != "2" || best[1].Added != 2 {
			t.Fatalf("the best of %s are %+v", arg, best)
		}
		short, last = best[0].ID, best[1].ID
		to := t.TempDir()
		said, code, told = f.try("batch", "export", arg, "--patches", to, "-o", "id")
		files, err := os.ReadDir(to)
		if code != 0 || err != nil || len(files) != 2 || files[0].Name() != short+".patch" || files[1].Name() != last+".patch" || !strings.Contains(told, "1 results are left out") {
			t.Errorf("export of %s: exit code %d, err %v, %v\n%s%s", arg, code, err, files, said, told)
		}
	}
	for name, want := range map[string]string{
		"report.md": "| tries | 2 of 2 items have a good one; 3 tries succeeded, 3 did not |", "report.html": "success, best</span>", "report.csv": ",1,1,true,", "preds.jsonl": "+short",
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q, err %v:\n%s", name, want, err, text)
		}
	}
	if preds, err := os.ReadFile(filepath.Join(out, "preds.jsonl")); err != nil || strings.Count(string(preds), "\n") != 2 {
		t.Errorf("err %v, predictions\n%s", err, preds)
	}
	if said, code, told = f.try("batch", "apply", out, "--dir", f.repo); code != 0 || strings.Count(said, "applied") != 2 {
		t.Errorf("apply: exit code %d\n%s%s", code, said, told)
	}
	if said, code, told = f.try(after(append(run, "--out", out+"3", "--limit", "3"), agent2)...); code != 3 || !strings.Contains(told, "some jobs did not succeed") {
		t.Errorf("with an item that no try solves: exit code %d\n%s%s", code, said, told)
	}
	for flag, says := range map[string]string{"--best-of=21": "between 1 and 20", "--agents=claude": "a command after --", "--deliver=branch": "each try would be delivered"} {
		if said, code, told = f.try(after(append(run, flag), agent2)...); code != 2 || !strings.Contains(told, says) {
			t.Errorf("%s: exit code %d\n%s%s", flag, code, said, told)
		}
	}
}

// One job runs several times, here and now: the result and the patch are those of the best try.
func TestTheBestOfARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	counts := t.TempDir()
	agent := []string{"--", "sh", "-c", `n=1; until mkdir ` + counts + `/$n; do n=$((n+1)); done; git log --format=%s -1
case $n in 1) printf 'one\ntwo\n' >answer;; 2) echo short >answer;; *) exit 1;; esac`}
	patch := filepath.Join(t.TempDir(), "fix.patch")
	run := []string{"run", "x", "--repo", f.repo, "--backend", "none", "--check", "ls answer", "--max-attempts", "1", "--best-of", "3"}
	said, code, told := f.try(after(append(run, "--patch", patch, "-o", "json"), agent)...)
	if code != 0 || !strings.Contains(told, "try 3 of 3") || !strings.Contains(told, "the best of 3 tries is job-try") || !strings.Contains(told, "success, 1 of 1 checks passed, 1 lines changed") {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	var result jobs.Result
	f.must(json.Unmarshal([]byte(lines[len(lines)-1]), &result))
	if written, err := os.ReadFile(patch); err != nil || !strings.Contains(string(written), "+short") || result.Outcome != jobs.Success || strings.Count(said, `"kind":"job.finished"`) != 3 {
		t.Errorf("err %v, result %+v, patch\n%s", err, result, written)
	}
	if said, code, told = f.try(after(run, agent)...); code != 3 || !strings.Contains(told, "job-try1") {
		t.Errorf("where no try succeeds: exit code %d\n%s%s", code, said, told)
	}
}

// Tries that are submitted are a batch on one commit, whose best is applied. The same key gives the
// same tries.
func TestTheBestOfASubmission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	submit := []string{"submit", "x", "--repo", f.repo, "--backend", "none", "--best-of", "2", "--key", "k", "-o", "id"}
	agent := []string{"--", "sh", "-c", `case $PENSTOCK_JOB in *[02468ace]) echo a >answer;; *) printf 'a\nb\n' >answer;; esac`}
	said, code, told := f.try(after(submit, agent)...)
	ids := strings.Fields(said)
	if code != 0 || len(ids) != 2 || !strings.Contains(told, "2 tries in batch ") {
		t.Fatalf("exit code %d\n%s%s", code, said, told)
	}
	if again := f.run(after(submit, agent)...); again != said {
		t.Errorf("the same key gave %s, and %s before", again, said)
	}
	f.run(append([]string{"wait", "--timeout", patience(60)}, ids...)...)
	first, second := f.record(ids[0]), f.record(ids[1])
	if first.Batch == "" || first.Batch != second.Batch || first.Labels[report.TryLabel] != "1" || second.Labels[report.TryLabel] != "2" || first.Labels[report.ItemLabel] != second.Labels[report.ItemLabel] {
		t.Errorf("they are %+v and %+v", first, second)
	}
	var r report.Report
	f.must(json.Unmarshal([]byte(f.run("batch", "report", first.Batch, "-o", "json")), &r))
	if len(r.Bases) != 1 || r.Tries == nil || r.Tries.Items != 1 || r.Tries.Solved != 1 {
		t.Errorf("the report has %+v and %+v", r.Bases, r.Tries)
	}
	if said := f.run("batch", "apply", first.Batch, "--dir", f.repo); strings.Count(said, "applied") != 1 {
		t.Errorf("applied %s", said)
	}
	f.refused(2, []string{"--best-of: 21 is not between 1 and 20"}, "submit", "x", "--repo", f.repo, "--agent", "claude", "--best-of", "21", "--dry-run")
	f.refused(2, []string{"--best-of", "each try would be delivered"}, "run", "x", "--repo", f.repo, "--agent", "claude", "--best-of", "2", "--deliver", "branch")
}
