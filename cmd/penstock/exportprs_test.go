package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
	"github.com/penstock-run/penstock/jobs"
)

// The branches that the jobs of a batch have delivered become pull requests when they are asked
// for: one of each, whoever asks how often. What the forge refuses is told, and may be asked for
// again; what has no branch, or did not succeed, has no pull request.
func TestResultsBecomePullRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stub, _ := f.github()
	f.repo = stub.Repository("o/r")
	f.serve("--slots", "2")
	out := filepath.Join(t.TempDir(), "results")
	_, code, told := f.try("batch", "run", f.issues(3, func(int) string { return "x" }), "--repo", f.repo, "--deliver", "branch", "--out", out, "--max-attempts", "1",
		"--", "sh", "-c", `n=$(grep -o '[0-9]' "$PENSTOCK_ISSUE_FILE" | head -n 1); [ "$n" != 3 ] && echo "$n" >"new$n"`)
	if code != 3 {
		t.Fatalf("exit code %d\n%s", code, told)
	}
	export := func(wantCode int, from string) (list []exportedPull, told string) {
		t.Helper()
		said, code, told := f.try("batch", "export", from, "--prs", "-o", "json")
		if err := json.Unmarshal([]byte(said), &list); err != nil || code != wantCode {
			t.Fatalf("exit code %d, err %v\n%s%s", code, err, said, told)
		}
		slices.SortFunc(list, func(a, b exportedPull) int { return strings.Compare(a.Item, b.Item) }) // the pool's order is that of the submission
		return list, told
	}
	stub.Next(forgetest.CreatePull, forgetest.Fault{Status: 415, Body: `{"message":"Unsupported"}`})
	list, told := export(3, out)
	if len(list) != 1 || !strings.Contains(told, "the forge refuses its pull request") || !strings.Contains(told, "Unsupported") {
		t.Fatalf("one of two is refused: %+v\n%s", list, told)
	}
	for _, from := range []string{out, results.BatchID(out), out} {
		list, told = export(0, from)
		if len(list) != 2 || list[0].Item != "1" || list[1].Item != "2" || list[0].State != "open" || !strings.Contains(list[1].URL, "/o/r/pull/") || list[0].URL == list[1].URL {
			t.Errorf("%s: %+v\n%s", from, list, told)
		}
	}
	pulls := stub.Pulls()
	if len(pulls) != 2 || !pulls[0].Draft || !pulls[1].Draft || !strings.HasPrefix(pulls[0].Head, "penstock/"+results.BatchID(out)+"/") || pulls[0].Head == pulls[1].Head {
		t.Errorf("GitHub has %+v", pulls)
	}
	id := f.submit("echo more >more", "--deliver", "branch")
	f.run("wait", "--timeout", patience(60), id)
	f.run("review", "--accept", id, "--deliver", "pr")
	f.eventually(30*time.Second, "the accepted result has a pull request", func() bool { return f.pullRequest(id).State == jobs.PullOpen })
	if rec := f.record(id); rec.Reviewed() != jobs.Delivered {
		t.Errorf("its review is %s", rec.Reviewed())
	}
	plain, failed := f.submit("echo more >more"), f.submit("false", "--deliver", "branch", "--max-attempts", "1")
	for id, want := range map[string]string{plain: "has delivered no branch", failed: "only a successful job"} {
		f.try("wait", "--timeout", patience(60), id)
		if said, code, told := f.try("review", "--accept", id, "--deliver", "pr"); code != 2 || !strings.Contains(told, want) {
			t.Errorf("exit code %d, want %q\n%s%s", code, want, said, told)
		}
	}
	if said, code, told := f.try("batch", "export", out, "--prs", "--branches"); code != 2 || !strings.Contains(told, "--prs") {
		t.Errorf("two ways at once: exit code %d\n%s%s", code, said, told)
	}
}

// An exportedPull is what export says of one result.
type exportedPull struct{ Item, URL, State string }
