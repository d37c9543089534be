package repo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// issue is what "gh issue list --json number,title,body,url,labels" prints.
type issue struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	Body   string `json:"body"`
	URL    string `json:"url"`
	Labels []struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Color       string `json:"color"`
	} `json:"labels"`
}

// needGit skips the test where git is missing, unless it is said to be there.
func needGit(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath("git"); err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "git") {
		tb.Fatal("git is required here and not installed")
	}
	tb.Skip("git is not installed")
}

// command runs a program and returns all it printed.
func command(tb testing.TB, dir string, env []string, argv ...string) (string, error) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(tb testing.TB, dir string, argv ...string) string {
	tb.Helper()
	out, err := command(tb, dir, nil, argv...)
	if err != nil {
		tb.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// demo makes the demo's repository and returns its directory and issues.
func demo(tb testing.TB) (string, []issue) {
	tb.Helper()
	needGit(tb)
	dir := tb.TempDir()
	must(tb, "../../../deploy/demo", "./make-repo.sh", dir)
	text, err := os.ReadFile(filepath.Join(dir, "issues.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var issues []issue
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&issues); err != nil {
		tb.Fatalf("issues.json: %v", err)
	}
	return filepath.Join(dir, "repo"), issues
}

func TestDemoRepository(t *testing.T) {
	t.Parallel()
	repo, issues := demo(t)
	again, _ := demo(t)
	if got, want := must(t, again, "git", "rev-parse", "HEAD"), must(t, repo, "git", "rev-parse", "HEAD"); got != want {
		t.Errorf("made twice: got commit %s, want %s again", got, want)
	}
	if got := must(t, repo, "git", "status", "--short"); got != "" {
		t.Errorf("got files that are not committed:\n%s", got)
	}
	if got := strings.Count(must(t, repo, "git", "ls-files"), "\n"); got < 250 {
		t.Errorf("got %d files, want some hundred", got)
	}
	if len(issues) != 100 {
		t.Errorf("got %d issues, want 100", len(issues))
	}
	for i, is := range issues {
		if is.Number != i+1 || is.Title == "" || is.Body == "" || len(is.Labels) != 1 || !strings.HasSuffix(is.URL, fmt.Sprintf("/issues/%d", i+1)) {
			t.Errorf("issue %d: got %+v", i+1, is)
		}
	}
	must(t, repo, "./run-tests.sh") // the faults are not known yet
}

// work lets the demo's agent loose on one issue in a clone of the repository.
func work(t *testing.T, repo string, is issue) (clone, out string, err error) {
	dir := t.TempDir()
	clone = filepath.Join(dir, "clone")
	must(t, dir, "git", "clone", "-q", repo, clone)
	prompt := filepath.Join(dir, "prompt")
	if err := os.WriteFile(prompt, []byte("Resolve this.\n\n"+is.Title+"\n\n"+is.Body+"\nThe issue:\n\n"+is.Body), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = command(t, clone, []string{"PENSTOCK_PROMPT_FILE=" + prompt, "TMPDIR=" + dir}, ".demo/agent.sh")
	if left, _ := filepath.Glob(filepath.Join(dir, "tmp.*")); len(left) > 0 {
		t.Errorf("the agent left %v", left)
	}
	return clone, out, err
}

// TestDemoAgent tries every ninth issue, which meets each kind of function.
func TestDemoAgent(t *testing.T) {
	t.Parallel()
	repo, issues := demo(t)
	for i := 0; i < len(issues); i += 9 {
		clone, out, err := work(t, repo, issues[i])
		if err != nil {
			t.Errorf("issue %d (%s): %v\n%s", i+1, issues[i].Title, err, out)
			continue
		}
		if !strings.Contains(out, "\nreproduced: ") {
			t.Errorf("issue %d: got no failing test first:\n%s", i+1, out)
		}
		if got := must(t, clone, "git", "status", "--short"); got != "" {
			t.Errorf("issue %d: got uncommitted files:\n%s", i+1, got)
		}
		if got := strings.Count(must(t, clone, "git", "diff", "origin/main", "HEAD", "--", "test"), "\n+expect"); got > 2 {
			t.Errorf("issue %d: got %d new cases in the test, want those of the issue once", i+1, got)
		}
		changed := strings.Fields(must(t, clone, "git", "diff", "--name-only", "origin/main", "HEAD"))
		if len(changed) != 2 || !strings.HasPrefix(changed[0], "lib/") || !strings.HasPrefix(changed[1], "test/") {
			t.Errorf("issue %d: got changes in %v, want one of lib and one of test", i+1, changed)
		}
	}
}

func TestDemoAgentGivesUp(t *testing.T) {
	t.Parallel()
	repo, _ := demo(t)
	tests := map[string]struct{ body, want string }{
		"no file":         {"Everything is broken!\n", "names no file"},
		"no expectation":  {"Look at `lib/text/dots.sh`.\n", "does not say what should be printed"},
		"nothing wrong":   {"`line_of_dots 0` should print ``.\n\nSee `lib/text/dots.sh`.\n", "cannot reproduce"},
		"not repairable":  {"`line_of_dots 3` should print `a cat`.\n\nSee `lib/text/dots.sh`.\n", "none of"},
		"false proposal":  {"`nine` should print `9`.\nPut it into `lib/text/nine.sh`.\n```sh\nnine() { echo 8; }\n```\n", "does not do what it says"},
		"broken proposal": {"`nine` should print `9`.\nPut it into `lib/text/nine.sh`.\n```sh\nnine() {\n```\n", "does not do what it says"},
	}
	for name, tt := range tests {
		clone, out, err := work(t, repo, issue{Title: "An issue", Body: tt.body})
		if err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: got %v and\n%s\nwant an error that says %q", name, err, out, tt.want)
		}
		if got := must(t, clone, "git", "rev-list", "--count", "origin/main..HEAD"); got != "0\n" {
			t.Errorf("%s: got %s commits, want none", name, got)
		}
	}
}
