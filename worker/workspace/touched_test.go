package workspace

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// touched is what a look at a workspace finds, in words.
func touched(t *testing.T, w *Workspace) (all []string) {
	t.Helper()
	stat, err := w.Touched(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stat.Files {
		all = append(all, fmt.Sprint(f.Path, f.Spans))
	}
	if _, err := os.Lstat(w.path("look")); !os.IsNotExist(err) {
		t.Errorf("a look has left its directory: %v", err)
	}
	return all
}

// A look finds which files and lines the agent has changed by now, whether it has committed them or not, and
// changes nothing of what is collected at the end.
func TestTouched(t *testing.T) {
	t.Parallel()
	for _, strategy := range []Strategy{Clone, Overlay} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			w := prepare(t, openAs(t, strategy, Limits{}), "job.1", repo)
			if got := touched(t, w); len(got) > 0 {
				t.Errorf("before the agent: %q", got)
			}
			upper := w.Dir()
			if strategy == Overlay {
				write(t, upper, "README", "hello\nthere\n")
				write(t, upper, "new.txt", "n\n")
			} else {
				sh(t, upper, "echo hello > README; echo there >> README; git add -A; git commit -qm done; echo n > new.txt; rm src/b.go; echo x > ignored.log")
			}
			want := []string{"README[{2 3}]", "new.txt[{1 1}]"}
			if strategy == Clone {
				want = append(want, "src/b.go[{1 2}]")
			}
			for range 2 {
				if got := touched(t, w); !slices.Equal(got, want) {
					t.Errorf("looked: %q, want %q", got, want)
				}
			}
			change := collect(t, w)
			if text := patch(t, change); change.Files != len(want) || !strings.Contains(text, "+there") {
				t.Errorf("collected %d files:\n%s", change.Files, text)
			}
		})
	}
}

// Looks may go on while a snapshot is made, and neither disturbs the other.
func TestTouchedBesideASnapshot(t *testing.T) {
	t.Parallel()
	w := prepare(t, openJailed(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), "for i in $(seq 200); do echo $i > many/g$i; done; git add -A; git commit -qm many")
	var looking sync.WaitGroup
	looking.Go(func() {
		for range 10 {
			if stat, err := w.Touched(t.Context()); err != nil || len(stat.Files) != 200 {
				t.Errorf("looked: %d files, %v", len(stat.Files), err)
			}
		}
	})
	for range 5 {
		change, err := w.Snapshot(t.Context())
		if err != nil || change.Files != 200 || change.Commits != 1 {
			t.Errorf("a snapshot has %d files and %d commits, %v", change.Files, change.Commits, err)
		}
	}
	looking.Wait()
}

// What has no commit to compare with has no such files.
func TestTouchedWithoutARepository(t *testing.T) {
	t.Parallel()
	w := prepareAs(t, open(t, Limits{}), "job.1", jobs.Repo{}, jobs.IsolationNone)
	write(t, w.Dir(), "made", "x\n")
	if got := touched(t, w); len(got) > 0 {
		t.Errorf("touched %q", got)
	}
}

// Of a difference that is too large the first part is read, and the result says that there is more.
func TestTouchedIsBounded(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	for _, name := range []string{"a", "b", "c"} {
		write(t, w.Dir(), "big-"+name, strings.Repeat(strings.Repeat("x", 99)+"\n", 25_000))
	}
	stat, err := w.Touched(t.Context())
	if err != nil || len(stat.Files) != 2 || !stat.Files[1].Whole || stat.More == 0 {
		t.Errorf("%d files and %d more, %v", len(stat.Files), stat.More, err)
	}
}
