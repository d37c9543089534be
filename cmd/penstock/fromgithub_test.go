package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/forge/forgetest"
)

// A batch of the issues that a search finds waits out GitHub's limit, runs each issue once
// and no pull request, and its pull requests refer to the issues. Run again it has the issues
// of its beginning, whatever has become of them, and does nothing twice.
func TestABatchFromGitHub(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stub, _ := f.github()
	stub.Issues = []forgetest.Issue{
		{Repo: "o/r", Number: 7, Title: "Crash `{{.issue}}`", Body: "$(touch /tmp/owned)\n@all, closes #1", Labels: []string{"bug"}},
		{Repo: "o/r", Number: 8, Title: "A pull request", Labels: []string{"bug"}, Pull: true},
		{Repo: "o/r", Number: 9, Title: "Closed", Labels: []string{"bug"}, Closed: true},
		{Repo: "o/r", Number: 12, Title: "Slow", Labels: []string{"bug"}},
		{Repo: "o/other", Number: 12, Title: "Elsewhere", Labels: []string{"bug"}},
	}
	out := filepath.Join(t.TempDir(), "out")
	args := []string{
		"batch", "run", "--from-github", "repo:o/r label:bug is:open", "--repo", stub.Repository("o/r"), "--out", out, "--deliver", "pr",
		"--", "sh", "-c", `sed -n 's/.*"title": //p' "$PENSTOCK_ISSUE_FILE" >>found.txt`,
	}
	stub.Next(forgetest.FindIssues, forgetest.Fault{Status: 403, Body: `{"message":"API rate limit exceeded","documentation_url":"https://docs.github.com"}`, Header: map[string]string{"Retry-After": "3600"}})
	if _, code, stderr := f.try(args...); code != 7 || !strings.Contains(stderr, "GitHub takes no search before") {
		t.Errorf("with a limit for an hour it ends with %d: %s", code, stderr)
	}
	stub.Next(forgetest.FindIssues, forgetest.Fault{Status: 429, Header: map[string]string{"Retry-After": "1"}})
	list, code, stderr := f.try(slices.Insert(slices.Clone(args), 2, "--dry-run", "-o", "id")...)
	if list != "o-r-7\no-r-12\n" || code != 0 || !strings.Contains(stderr, "the search goes on in 1s") {
		t.Errorf("a dry run ends with %d, lists %q and says %s", code, list, stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a dry run has made the results directory")
	}
	f.serve("--slots", "2")
	f.run(args...)
	asked := stub.Calls(forgetest.FindIssues)
	f.eventually(30*time.Second, "both pull requests are open", func() bool { return len(stub.Pulls()) == 2 })
	for _, n := range []string{"7", "12"} {
		patch, err := os.ReadFile(filepath.Join(out, "patches", "o-r-"+n+".patch"))
		if err != nil || !strings.Contains(string(patch), map[string]string{"7": "+\"Crash `{{.issue}}`\"", "12": `+"Slow"`}[n]) {
			t.Errorf("issue %s: %v\n%s", n, err, patch)
		}
		refers := func(p forgetest.Pull) bool {
			return strings.Contains(p.Body, "\nIssue: https://github.com/o/r/issues/"+n+"\n")
		}
		if !slices.ContainsFunc(stub.Pulls(), refers) {
			t.Errorf("no pull request refers to issue %s: %+v", n, stub.Pulls())
		}
	}
	stub.Change(1, func(*forgetest.Pull) { // under its lock
		stub.Issues[0].Title = "Edited"
		stub.Issues[3].Closed = true
		stub.Issues = append(stub.Issues, forgetest.Issue{Repo: "o/r", Number: 13, Title: "Another", Labels: []string{"bug"}})
	})
	_, code, stderr = f.try(args...)
	if code != 0 || stub.Calls(forgetest.FindIssues) != asked || !strings.Contains(stderr, "2 of 2 done") || strings.Count(f.run("job", "ls", "-o", "id"), "\n") != 2 {
		t.Errorf("run again it ends with %d after %d searches: %s%s", code, stub.Calls(forgetest.FindIssues)-asked, stderr, f.run("job", "ls"))
	}
	args[3] = "repo:o/r label:bug"
	if _, code, stderr := f.try(args...); code != 2 || !strings.Contains(stderr, "another batch") {
		t.Errorf("another search in its directory ends with %d: %s", code, stderr)
	}
}

// A search that has no whole answer begins nothing.
func TestASearchThatIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stub, _ := f.github()
	for n := range 1001 {
		stub.Issues = append(stub.Issues, forgetest.Issue{Repo: "o/r", Number: n + 1, Title: fmt.Sprint("Issue ", n+1)})
	}
	out := filepath.Join(t.TempDir(), "out")
	search := func(query string, more ...string) (string, int, string) {
		return f.try(append([]string{"batch", "run", "--from-github", query, "--repo", f.repo, "--out", out, "--agent", "claude", "--dry-run", "-o", "id"}, more...)...)
	}
	refused := func(code int, want string, query string, more ...string) {
		t.Helper()
		if _, got, stderr := search(query, more...); got != code || !strings.Contains(stderr, want) || strings.Contains(stderr, forgeToken) {
			t.Errorf("%q %v ends with %d: %s", query, more, got, stderr)
		}
	}
	refused(2, "the search finds 1001 issues, and GitHub lists 1000 of them", "repo:o/r")
	refused(2, "1001 issues", "repo:o/r", "--limit", "5", "--filter", "o-r-9")
	refused(2, "has no items", "repo:o/none")
	refused(2, "the search is empty", " ")
	refused(2, "a file and --from-github", "repo:o/r", "issues.json")
	refused(2, "has a format of its own", "repo:o/r", "--format", "csv")
	stub.Next(forgetest.FindIssues, forgetest.Fault{Status: 503}, forgetest.Fault{Status: 401})
	refused(7, "answered 503", "repo:o/r")
	refused(6, "penstock github setup", "repo:o/r")
	before := stub.Calls(forgetest.FindIssues)
	if list, code, stderr := search("repo:o/r", "--limit", "150"); code != 0 || strings.Count(list, "\n") != 150 || !strings.HasPrefix(list, "o-r-1\n") || stub.Calls(forgetest.FindIssues) != before+2 {
		t.Errorf("the first 150 end with %d after %d pages: %s", code, stub.Calls(forgetest.FindIssues)-before, stderr)
	}
}
