package git

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

// Git takes the files for unchanged, without reading them, whose owner and times the index has.
func TestSetOwner(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		dir := t.TempDir()
		exectest.Script(t, dir, "git init -q --object-format="+format+`
mkdir d; for i in 1 22 333 4444 55555 666666 7777777 88888888; do echo $i > d/$i; done; ln -s d link
git add -A; git commit -qm one`)
		when := time.Now().Add(-time.Hour)
		for _, name := range []string{"1", "22", "333", "4444", "55555", "666666", "7777777", "88888888"} {
			if err := os.Chtimes(filepath.Join(dir, "d", name), when, when); err != nil {
				t.Fatal(err)
			}
		}
		changed := func() string {
			return exectest.Script(t, dir, "git -c core.trustctime=false diff-files --name-only | wc -l")
		}
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
		exectest.Script(t, dir, "git status && git fsck") // which read the index, with its hash
	}
	bad := filepath.Join(t.TempDir(), "index")
	if err := os.WriteFile(bad, []byte("DIRC\x00\x00\x00\x04"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SetOwner(bad, 1, 1, time.Now()); err == nil {
		t.Error("what is no index of version 2 was changed")
	}
}
