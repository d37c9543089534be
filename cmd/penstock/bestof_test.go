package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/results"
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
		"report.md": "| tries | 2 of 2 items have a good one; 3 tries succeeded, 3 did not |", "report.html": "success, best</span>", "report.csv": ",1,true\n", "preds.jsonl": "+short",
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
	for flag, says := range map[string]string{"--best-of=21": "between 1 and 20", "--agents=claude": "best-of", "--deliver=branch": "each try would be delivered"} {
		if said, code, told = f.try(after(append(run, flag), agent2)...); code != 2 || !strings.Contains(told, says) {
			t.Errorf("%s: exit code %d\n%s%s", flag, code, said, told)
		}
	}
}
