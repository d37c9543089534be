package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// What is lost with a workspace is what was written there, however it was made;
// a directory of the user's stays.
func TestDiscardSaysWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		strategy  Strategy
		isolation jobs.Isolation
		want      string
	}{
		{Overlay, jobs.IsolationWorktree, "README: 1 files, 1 KiB; src: 2 files, 3 KiB"},
		{Clone, jobs.IsolationWorktree, "README: 1 files, 1 KiB; src: 2 files, 3 KiB"},
		{Clone, jobs.IsolationNone, "which stays"},
	} {
		s, repo := openAs(t, c.strategy, Limits{}), newRepo(t)
		w, err := s.Prepare(t.Context(), Request{ID: "orphan.7", Repo: jobs.Repo{URL: repo}, Isolation: c.isolation})
		if err != nil {
			t.Fatal(err)
		}
		// The next tick of the file system's clock.
		made, err := os.Stat(w.path(recordFile))
		for now := made; err == nil && now.ModTime().Equal(made.ModTime()); {
			if err = w.writeRecord(w.Strategy()); err == nil {
				now, err = os.Stat(w.path(recordFile))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		act(t, w, "echo more >> README; head -c 3000 /dev/zero > src/new; mkdir -m 0 src/no; echo a > src/newer")
		if _, _, err := s.Discard(t.Context(), w.ID(), false); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: of a workspace in use: %v", c.strategy, err)
		}
		if err := w.Close(); err == nil {
			t.Fatal("it was closed with changes")
		}
		lost, why, err := s.Discard(t.Context(), w.ID(), false)
		if got := strings.Join(lost, "; "); err != nil || why == nil || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: lost %q, because %v, %v; want %s", c.strategy, got, why, err, c.want)
		}
		if _, err := os.Stat(filepath.Join(repo, "src/new")); (err == nil) != (c.isolation == jobs.IsolationNone) {
			t.Errorf("%s: the user's directory: %v", c.strategy, err)
		}
		nothingLeft(t, s)
	}
}
