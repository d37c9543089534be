package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// BenchmarkWorkspace takes a workspace through its life, and next to it does
// with "git worktree" what people do by hand, in the same run.
func BenchmarkWorkspace(b *testing.B) {
	for _, files := range []int{300, 13000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			repo := filepath.Join(b.TempDir(), "repo")
			for i := range files {
				name := fmt.Sprintf("d%d/e%d/f%d.go", i%37, i%11, i)
				write(b, repo, name, fmt.Sprintln("package", name, i*i*7919))
			}
			run(b, repo, "git", "init", "-q", "-b", "main")
			run(b, repo, "git", "config", "gc.auto", "0")
			run(b, repo, "git", "add", "-A")
			run(b, repo, "git", "commit", "-q", "-m", "first")
			run(b, repo, "git", "gc", "-q")
			s := open(b, Limits{})
			life(b, s, "warm", repo, new([3]time.Duration)) // the first one fetches
			var ours [3]time.Duration
			var linked time.Duration
			n := 0
			for b.Loop() {
				life(b, s, fmt.Sprintf("job.%d", n), repo, &ours)
				linked += byHand(b, repo)
				n++
			}
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
			b.ReportMetric(ms(ours[0]), "prepare-ms")
			b.ReportMetric(ms(ours[1]), "collect-ms")
			b.ReportMetric(ms(ours[2]), "close-ms")
			b.ReportMetric(ms(linked), "worktree-ms")
			b.ReportMetric(float64(linked)/float64(ours[0]+ours[1]+ours[2]), "times-faster")
		})
	}
}

func life(b *testing.B, s *Spaces, id, repo string, took *[3]time.Duration) {
	b.Helper()
	start := time.Now()
	w, err := s.Prepare(b.Context(), Request{ID: id, Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
	if err != nil {
		b.Fatal(err)
	}
	prepared := time.Now()
	write(b, w.Dir(), "d1/e1/f1.go", "changed\n")
	write(b, w.Dir(), "new", "new\n")
	if c, err := w.Collect(b.Context()); err != nil || c.Files == 0 {
		b.Fatalf("%d files, %v", c.Files, err)
	}
	collected := time.Now()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	took[0] += prepared.Sub(start)
	took[1] += collected.Sub(prepared)
	took[2] += time.Since(collected)
}

func byHand(b *testing.B, repo string) time.Duration {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "worktree")
	start := time.Now()
	run(b, repo, "git", "worktree", "add", "-q", "--detach", dir)
	write(b, dir, "d1/e1/f1.go", "changed\n")
	write(b, dir, "new", "new\n")
	run(b, dir, "git", "add", "-A")
	run(b, dir, "git", "diff", "--cached", "--binary")
	run(b, repo, "git", "worktree", "remove", "--force", dir)
	took := time.Since(start)
	os.RemoveAll(dir)
	return took
}
