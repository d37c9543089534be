package workspace

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

func TestEvictionKeepsTheNewest(t *testing.T) {
	repo := newRepo(t)
	s := open(t, Limits{})
	var newest string
	for i := range 3 {
		sh(t, repo, "git commit -q --allow-empty -m "+strconv.Itoa(i))
		w := prepare(t, s, "job.1", repo)
		newest = w.Base()
		w.Close()
	}
	all, err := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/bases/*/index"))
	if err != nil || len(all) != 3 {
		t.Fatalf("got bases %q, %v", all, err)
	}
	// The bases share packs, so they differ in size.
	s.cfg.Limits.BaseBytes = filesIn(t, filepath.Join(filepath.Dir(filepath.Dir(all[0])), newest))
	if swept, err := s.Sweep(t.Context()); err != nil || swept.Bases != 2 {
		t.Errorf("got %v, %v; want two bases evicted", swept, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/bases/"+newest)); len(left) != 1 {
		t.Error("the newest base is gone")
	}
}

// A sweep waits for the others who fetch and build, nearly all the time where each job has a
// commit of its own.
func TestEvictionOfABusyRepository(t *testing.T) {
	repo := newRepo(t)
	s := open(t, Limits{BaseBytes: 1})
	prepare(t, s, "job.1", repo).Close()
	sh(t, repo, "git commit -q --allow-empty -m more")
	w := prepare(t, s, "job.2", repo)
	defer w.Close()
	locks, err := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("got locks %q, %v", locks, err)
	}
	busy, err := disk.TryLock(locks[0], syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = busy.Release() })
	if swept, err := s.Sweep(t.Context()); err != nil || swept.Bases != 1 {
		t.Errorf("got %v, %v; want the base evicted that is not in use", swept, err)
	}
}

// filesIn sums up the lengths of the files below a directory, and its part of those that it
// shares with others.
func filesIn(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size() / int64(info.Sys().(*syscall.Stat_t).Nlink)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// Where room is wanted the oldest go first, what is in use stays, and a mirror
// goes last; all of it comes back when a job needs it.
func TestEvictUntilEnough(t *testing.T) {
	repo := newRepo(t)
	s := open(t, Limits{})
	var commits []string
	for i := range 3 {
		sh(t, repo, "git commit -q --allow-empty -m "+strconv.Itoa(i))
		w := prepare(t, s, "job.1", repo)
		commits = append(commits, w.Base())
		w.Close()
	}
	held := prepare(t, s, "held.1", repo) // of the newest
	left := func() (names []string) {
		for _, pattern := range []string{"mirrors/*/bases/*[0-9a-f]", "mirrors/*/mirror.git"} {
			found, err := filepath.Glob(filepath.Join(s.cfg.Dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range found {
				names = append(names, filepath.Base(name))
			}
		}
		slices.Sort(names)
		return names
	}
	evict := func(enough func() bool, want int, stay ...string) {
		t.Helper()
		removed, err := s.Evict(t.Context(), enough)
		slices.Sort(stay)
		if got := left(); err != nil || removed != want || !slices.Equal(got, stay) {
			t.Errorf("removed %d, %v, and there are %q; want %d and %q", removed, err, got, want, stay)
		}
	}
	enough := func(n int) func() bool { return func() bool { return len(left()) <= n } }
	evict(enough(4), 0, commits[0], commits[1], commits[2], "mirror.git")
	// A process that builds a base in a mirror has the mirror's lock, and does not hold
	// the base yet.
	locks, err := filepath.Glob(filepath.Join(s.cfg.Dir, "mirrors/*/lock"))
	if err != nil || len(locks) != 1 {
		t.Fatal(locks, err)
	}
	building, err := disk.TryLock(locks[0], syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	evict(enough(0), 0, commits[0], commits[1], commits[2], "mirror.git")
	if err := building.Release(); err != nil {
		t.Error(err)
	}
	evict(enough(3), 1, commits[1], commits[2], "mirror.git")
	evict(enough(0), 1, commits[2], "mirror.git")
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	evict(enough(0), 1)
	nothingLeft(t, s)
	w := prepare(t, s, "job.2", repo)
	run(t, w.Dir(), "git", "fsck")
	w.Close()
}
