package workspace

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// BenchmarkFirst is the first job on a repository that the worker has never seen, until its
// workspace is there, and the first one on the next commit, in which seven files differ. In
// turn with them, git makes its own clone with files.
func BenchmarkFirst(b *testing.B) {
	for _, files := range []int{13_000, 80_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			repo, _ := generated(b, files)
			var first, next, byGit []time.Duration
			git := func() {
				began := time.Now()
				run(b, repo, "git", "clone", "-q", "--shared", ".", filepath.Join(b.TempDir(), "clone"))
				byGit = append(byGit, time.Since(began))
			}
			// What they make stays: a file system may take long to find what others have just left.
			for n := 0; b.Loop(); n++ {
				if n%2 == 0 {
					git()
				}
				s := openAs(b, Overlay, Limits{})
				first = append(first, untilReady(b, s, repo, "first"))
				if n%2 == 1 {
					git()
				}
				for i := range 7 {
					write(b, repo, fmt.Sprintf("d%d/e%d/f%d.go", i%37, i%53, i), fmt.Sprintln("package", n))
				}
				run(b, repo, "git", "commit", "-q", "-a", "-m", "next")
				next = append(next, untilReady(b, s, repo, "next"))
			}
			half := len(first) / 2
			for _, all := range [][]time.Duration{first, next, byGit} {
				slices.Sort(all)
			}
			b.ReportMetric(first[half].Seconds(), "first-s")
			b.ReportMetric(next[half].Seconds(), "next-s")
			b.ReportMetric(byGit[half].Seconds(), "git-clone-shared-s")
			b.ReportMetric(float64(first[half])/float64(byGit[half]), "times-git")
		})
	}
}

// untilReady is what it takes to get a workspace of the newest commit.
func untilReady(b *testing.B, s *Spaces, repo, id string) time.Duration {
	b.Helper()
	began := time.Now()
	w, err := s.Prepare(b.Context(), Request{ID: id, Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.remove(); err != nil {
		b.Fatal(err)
	}
	return took
}
