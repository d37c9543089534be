package session_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// BenchmarkAppend measures events a second, by how many are appended at once
// and how many sessions do so.
func BenchmarkAppend(b *testing.B) {
	for name, start := range map[string]func(testing.TB) *jobstest.Server{"fast": jobstest.Start, "synced": jobstest.StartSynced} {
		for _, sessions := range []int{1, 100} {
			for _, at := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("%s/sessions=%d/at_once=%d", name, sessions, at), func(b *testing.B) {
					benchAppend(b, start(b), sessions, at)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, s *jobstest.Server, sessions, at int) {
	l := jobstest.Log(b, s.Connect())
	var left atomic.Int64
	left.Store(int64(b.N))
	var writers []*session.Writer
	for range sessions {
		writers = append(writers, writer(b, l, source(jobs.NewID(), 1)))
	}
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, w := range writers {
		wg.Go(func() {
			for left.Add(-int64(at)) > -int64(at) {
				if err := w.Append(b.Context(), lines(at)...); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
