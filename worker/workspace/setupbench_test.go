package workspace

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// BenchmarkSetup lets jobs have the files of a setup that writes many small
// ones, as package managers do: taken over from another job, and each its own
// in turn. What a package manager spends beyond writing comes on top of that.
func BenchmarkSetup(b *testing.B) {
	const script = `mkdir out; for d in $(seq 100); do mkdir out/$d; for f in $(seq 50); do echo module $f > out/$d/$f.js; done; done`
	for _, files := range []int{600, 13_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			repo, commit := generated(b, files)
			s := openAs(b, Overlay, Limits{})
			n := 0
			live := func(key string) (took time.Duration) {
				n++
				w, err := s.Prepare(b.Context(), Request{
					ID: fmt.Sprintf("job.%d", n), Repo: jobs.Repo{URL: repo, Commit: commit}, Isolation: jobs.IsolationWorktree,
				})
				if err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				if _, _, err := w.Setup(b.Context(), key, func(_ context.Context, in *Workspace) error {
					act(b, in, script)
					return nil
				}); err != nil {
					b.Fatal(err)
				}
				took = time.Since(began)
				if err := w.remove(); err != nil {
					b.Fatal(err)
				}
				return took
			}
			made := live("key")
			var own, shared time.Duration
			rounds := 0
			for b.Loop() {
				own, shared = own+live(""), shared+live("key")
				rounds++
			}
			b.ReportMetric(ms(made), "first-ms")
			b.ReportMetric(ms(own)/float64(rounds), "own-ms")
			b.ReportMetric(ms(shared)/float64(rounds), "shared-ms")
			b.ReportMetric(float64(own)/float64(shared), "times-faster")
		})
	}
}
