package workspace

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// packs are the packs of a workspace's history, by their names.
func packs(tb testing.TB, w *Workspace) map[string]os.FileInfo {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(w.base.Objects(), "pack/*.pack"))
	if err != nil || len(names) == 0 {
		tb.Fatalf("got %q, %v", names, err)
	}
	all := map[string]os.FileInfo{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			tb.Fatal(err)
		}
		all[filepath.Base(name)] = info
	}
	return all
}

// shared counts the packs that two workspaces have together, on the disk once.
func shared(a, b map[string]os.FileInfo) (n int) {
	for name, info := range a {
		if b[name] != nil && os.SameFile(info, b[name]) {
			n++
		}
	}
	return n
}

// The history of an ancestor is taken over, and nothing that is not in the commit's own.
func TestHistoryIsTakenOver(t *testing.T) {
	t.Parallel()
	repo, commits := past(t, "echo one > one", "echo two > two")
	sh(t, repo, "git checkout -q -b aside HEAD^; echo secret > aside; git add -A; git commit -qm aside; git checkout -q main")
	aside := run(t, repo, "git", "rev-parse", "aside")
	s := openAs(t, Overlay, Limits{})
	first := prepareAt(t, s, repo, commits[1])
	of := packs(t, first)
	other := prepareAt(t, s, repo, aside)
	if got := packs(t, other); len(got) != 2 || shared(of, got) != 1 {
		t.Errorf("of %d packs of a branch %d are its ancestor's, want one of two", len(got), shared(of, got))
	}
	next := prepareAt(t, s, repo, commits[2])
	if got := packs(t, next); len(got) != 2 || shared(of, got) != 1 {
		t.Errorf("of %d packs %d are the ancestor's, want one of two", len(got), shared(of, got))
	}
	before := prepareAt(t, s, repo, commits[0])
	if got := packs(t, before); shared(of, got) != 0 {
		t.Error("an ancestor has the history of its descendant")
	}
	for w, want := range map[*Workspace]string{first: "no no", other: "yes no", next: "no yes", before: "no no"} {
		script := "for c in " + aside + " " + commits[2] + "; do git cat-file -e $c^{tree} 2>/dev/null && echo yes || echo no; done; git fsck 2>&1; git log --oneline | wc -l"
		got := strings.Fields(act(t, w, script))
		if len(got) != 3 || strings.Join(got[:2], " ") != want {
			t.Errorf("at %s: got %q, want %s and the number of commits", w.base.Commit, got, want)
		}
	}
	closeAll(t, first, other, next, before)
}

// Each generation adds a pack, so now and then a history is written anew.
func TestHistoryIsJoined(t *testing.T) {
	t.Parallel()
	var scripts []string
	for range 14 {
		scripts = append(scripts, "echo more >> README")
	}
	repo, commits := past(t, scripts...)
	s := openAs(t, Overlay, Limits{})
	most, least := 0, len(commits)
	for i, commit := range commits {
		w := prepareAt(t, s, repo, commit)
		n := len(packs(t, w))
		if i > 10 {
			least = min(least, n)
		}
		most = max(most, n)
		closeAll(t, w)
	}
	if most != 11 || least > 3 {
		t.Errorf("at most %d packs, and at least %d after many generations, want 11 and few", most, least)
	}
}

// A server of files gives packs as they are, with what is on other branches.
func TestHistoryOfAServerOfFiles(t *testing.T) {
	t.Parallel()
	repo, commits := past(t, "echo one > one")
	sh(t, repo, "git checkout -q -b aside; echo secret > aside; git add -A; git commit -qm aside; git checkout -q main; git gc -q; git update-server-info")
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(repo, ".git"))))
	t.Cleanup(server.Close)
	s := openAs(t, Overlay, Limits{})
	w := prepareAt(t, s, server.URL, commits[1])
	script := "git cat-file -e " + run(t, repo, "git", "rev-parse", "aside") + " 2>/dev/null && echo there; git fsck 2>&1; cat one"
	if got := act(t, w, script); got != "one\n" {
		t.Errorf("got %q", got)
	}
	closeAll(t, w)
}

// What is damaged is not taken over for ever.
func TestADamagedHistoryIsNotTakenOver(t *testing.T) {
	t.Parallel()
	repo, commits := past(t, "echo one > one", "echo two > two")
	for name, damage := range map[string]func(f *os.File, size int64) error{
		"cut":     func(f *os.File, size int64) error { return f.Truncate(size / 2) },
		"changed": func(f *os.File, size int64) error { _, err := f.WriteAt(make([]byte, size-100), 50); return err },
	} {
		for _, before := range [][]string{nil, {commits[0]}} { // without, the mirror is damaged, too
			s := openAs(t, Overlay, Limits{})
			for _, c := range before {
				closeAll(t, prepareAt(t, s, repo, c))
			}
			first := prepareAt(t, s, repo, commits[1])
			for pack, info := range packs(t, first) {
				if before != nil && info.Sys().(*syscall.Stat_t).Nlink > 1 {
					continue
				}
				pack = filepath.Join(first.base.Objects(), "pack", pack)
				if err := os.Chmod(pack, 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(pack, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(damage(f, info.Size()), f.Close()); err != nil {
					t.Fatal(err)
				}
			}
			second := prepareAt(t, s, repo, commits[2])
			if got := act(t, second, "git fsck 2>&1; git status --porcelain; cat two"); got != "two\n" {
				t.Errorf("%s, after %d others: got %q", name, len(before), got)
			}
			closeAll(t, first, second)
		}
	}
}
