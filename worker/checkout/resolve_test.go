package checkout

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestResolve asks for the same names at a path and at an address.
func TestResolve(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	env := append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.org")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("init", "-q", "-b", "main", dir)
	commits := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		run("-C", dir, "commit", "-q", "--allow-empty", "-m", name)
		commits[name] = run("-C", dir, "rev-parse", "HEAD")
	}
	run("-C", dir, "tag", "-a", "-m", "x", "v1", commits["one"])
	run("-C", dir, "tag", "both", commits["one"])
	run("-C", dir, "branch", "both", commits["two"])
	for ref, want := range map[string]string{
		"": commits["three"], "main": commits["three"], "refs/heads/main": commits["three"], "v1": commits["one"], "refs/tags/v1": commits["one"],
		"both": commits["two"], commits["one"]: commits["one"], "nowhere": "", "main~1": "", "refs/heads/nowhere": "", "--help": "",
	} {
		for what, ask := range map[string]func() (string, error){
			"a path":      func() (string, error) { return Resolve(t.Context(), dir, ref, env) },
			"a file URL":  func() (string, error) { return Resolve(t.Context(), "file://"+dir, ref, env) },
			"a directory": func() (string, error) { return Resolve(t.Context(), filepath.Join(dir, ".git"), ref, env) },
		} {
			if got, err := ask(); got != want || (err == nil) != (want != "") {
				t.Errorf("%q of %s: got %q, %v, want %q", ref, what, got, err, want)
			}
		}
		if ref == commits["one"] {
			continue // which no remote is asked for
		}
		if got, err := remote(t.Context(), "file://"+dir, ref, env); got != want || err != nil {
			t.Errorf("%q of a remote: got %q, %v, want %q", ref, got, err, want)
		}
	}
	if got, err := Resolve(t.Context(), dir, commits["two"][:9], env); err != nil || got != commits["two"] {
		t.Errorf("the beginning of an id: %q, %v", got, err)
	}
	if _, err := Resolve(t.Context(), t.TempDir(), "", env); err == nil {
		t.Error("a directory without a repository has a commit")
	}
	if got, err := Resolve(t.Context(), "https://example.org/x", commits["one"], env); err != nil || got != commits["one"] {
		t.Errorf("a full id of a remote: %q, %v", got, err)
	}
}
