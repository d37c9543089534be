package queue_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// BenchmarkSubmitToClaim measures how long an idle pool takes from the submit
// to the claim.
func BenchmarkSubmitToClaim(b *testing.B) {
	for name, start := range map[string]func(testing.TB) *jobstest.Server{"fast": jobstest.Start, "synced": jobstest.StartSynced} {
		b.Run(name, func(b *testing.B) {
			s := start(b)
			q, w := open(b, s, queue.Config{Lease: 10 * time.Second}), open(b, s, queue.Config{Lease: 10 * time.Second})
			settle(b, claimOf(b, q, w), success) // the lanes exist
			var took []time.Duration
			for b.Loop() {
				claimed := make(chan *queue.Claim, 1)
				go func() { claimed <- jobstest.Claim(b, w, "w") }()
				time.Sleep(5 * time.Millisecond) // it waits by now
				begun := time.Now()
				jobstest.Submit(b, q, jobstest.Job())
				c := <-claimed
				took = append(took, time.Since(begun))
				settle(b, c, success)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
		})
	}
}

func claimOf(b *testing.B, q, w *queue.Queue) *queue.Claim {
	b.Helper()
	jobstest.Submit(b, q, jobstest.Job())
	return jobstest.Claim(b, w, "w")
}

// BenchmarkJobs measures whole lives of jobs that do nothing, by workers.
func BenchmarkJobs(b *testing.B) {
	for _, workers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s := jobstest.Start(b)
			q := open(b, s, queue.Config{Lease: 10 * time.Second})
			for range b.N {
				jobstest.Submit(b, q, jobstest.Job())
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			left := make(chan bool, b.N)
			for range b.N {
				left <- true
			}
			close(left)
			for range workers {
				wg.Go(func() {
					for range left {
						settle(b, jobstest.Claim(b, q, "w"), success)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
