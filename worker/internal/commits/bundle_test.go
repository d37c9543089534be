package commits

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/internal/git"
)

func TestReadBundleRefuses(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 40)
	for _, c := range []struct{ text, want string }{
		{"# v2 git bundle\n-" + id + " base\n" + id + " HEAD\n\nPACK", ""},
		{"# v3 git bundle\n@object-format=sha1\n" + id + " HEAD\n\nPACK", ""},
		{"# v3 git bundle\n@filter=blob:none\n" + id + " HEAD\n\nPACK", "line 2"},
		{"# v3 git bundle\n@object-format=sha256\n" + id + " HEAD\n\nPACK", "line 2"},
		{"# v2 git bundle\n" + id + " refs/heads/x\n\nPACK", "line 2"},
		{"# v2 git bundle\n" + id + " HEAD\n" + id + " HEAD\n\nPACK", "line 3"},
		{"# v2 git bundle\n\nPACK", "line 2"},
		{"# v2 git bundle\n--upload-pack=x HEAD\n\nPACK", "line 3"},
		{"PACK", "read bundle"},
		{"", "read bundle"},
		{"# v2 git bundle\n" + strings.Repeat("x", 10000), "read bundle"},
	} {
		tip, _, err := readBundle(strings.NewReader(c.text), "HEAD", 40)
		if c.want == "" && (err != nil || tip != id) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %q, %v; want %q", c.text, tip, err, c.want)
		}
	}
}

// output runs a program with an identity for commits, and returns what it printed.
func output(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.org",
		"GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestAdmit: of the objects that a pack names each must be there.
func TestAdmit(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	sh := func(dir, script string) { t.Helper(); output(t, dir, "sh", "-ec", script) }
	sh(repo, "git init -q -b main; echo x > README; git add -A; git commit -qm base")
	base := output(t, repo, "git", "rev-parse", "HEAD")
	sh(repo, "mkdir -p new/dir; echo x > new/dir/f; git add -A; git commit -qm one; echo y >> new/dir/f; git commit -qam two")
	tip := output(t, repo, "git", "rev-parse", "HEAD")
	objects := strings.Split(output(t, repo, "git", "rev-list", "--objects", "--no-object-names", tip, "--not", base), "\n")
	for _, closed := range []bool{true, false} {
		for missing := -1; missing < len(objects); missing++ {
			to := filepath.Join(t.TempDir(), "git")
			output(t, repo, "git", "init", "-q", "--bare", to)
			output(t, repo, "git", "push", "-q", to, base+":refs/heads/base")
			var names strings.Builder
			for i, id := range objects {
				if i != missing {
					names.WriteString(id + "\n")
				}
			}
			var pack bytes.Buffer
			own := git.Repo{Dir: filepath.Join(repo, ".git")}
			if err := own.Pipe(t.Context(), strings.NewReader(names.String()), &pack, "pack-objects", "-q", "--stdout"); err != nil {
				t.Fatal(err)
			}
			s, err := Bundle{Base: base, Limit: 1 << 20, closed: closed}.admit(t.Context(), git.Repo{Dir: to}, tip, &pack)
			if missing >= 0 && err == nil {
				t.Errorf("closed %v: a pack without %s was taken: %s", closed, objects[missing], output(t, repo, "git", "cat-file", "-t", objects[missing]))
			}
			if missing < 0 && (err != nil || s.Count != 2 || s.Tree != output(t, repo, "git", "rev-parse", tip+"^{tree}")) {
				t.Errorf("closed %v: got %+v, err %v", closed, s, err)
			}
		}
	}
}
