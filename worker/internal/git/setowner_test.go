package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sh runs a script, and returns what it prints without the last newline.
func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Git takes the files for unchanged, without reading them, whose owner and times the index has.
func TestSetOwner(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		dir := t.TempDir()
		sh(t, dir, "git init -q --object-format="+format+`
mkdir d; for i in 1 22 333 4444 55555 666666 7777777 88888888; do echo $i > d/$i; done; ln -s d link
git add -A; git commit -qm one`)
		when := time.Now().Add(-time.Hour)
		for _, name := range []string{"1", "22", "333", "4444", "55555", "666666", "7777777", "88888888"} {
			if err := os.Chtimes(filepath.Join(dir, "d", name), when, when); err != nil {
				t.Fatal(err)
			}
		}
		changed := func() string { return sh(t, dir, "git -c core.trustctime=false diff-files --name-only | wc -l") }
		if got := changed(); got != "8" {
			t.Fatalf("%s: %s files look changed, want 8", format, got)
		}
		index := filepath.Join(dir, ".git/index")
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		owner := st.Sys().(*syscall.Stat_t)
		if err := SetOwner(index, owner.Uid, owner.Gid, when); err != nil {
			t.Fatal(err)
		}
		if got := changed(); got != "1" { // the link, which is younger
			t.Errorf("%s: %s files look changed, want the link", format, got)
		}
		if err := SetOwner(index, owner.Uid+1, owner.Gid, when); err != nil {
			t.Fatal(err)
		}
		if got := changed(); got != "9" {
			t.Errorf("%s: %s files look changed that have another owner, want 9", format, got)
		}
		sh(t, dir, "git status && git fsck") // which read the index, with its hash
	}
	bad := filepath.Join(t.TempDir(), "index")
	if err := os.WriteFile(bad, []byte("DIRC\x00\x00\x00\x04"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SetOwner(bad, 1, 1, time.Now()); err == nil {
		t.Error("what is no index of version 2 was changed")
	}
}
