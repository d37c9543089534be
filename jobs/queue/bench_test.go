package queue_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
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

// BenchmarkClaims compares the rate of claims with many jobs in the queue and
// with a thousand. The two have brokers of their own, each in a process of its
// own, and take turns. PENSTOCK_BENCH_QUEUED says how many are many; to submit
// a million takes several minutes.
func BenchmarkClaims(b *testing.B) {
	many := 100_000
	if asked, err := strconv.Atoi(os.Getenv("PENSTOCK_BENCH_QUEUED")); err == nil {
		many = asked
	}
	short, long := stock(b, 1000), stock(b, many)
	var few, most []float64
	round := func() {
		few, most = append(few, short.claims(b)), append(most, long.claims(b))
	}
	round()
	few, most = nil, nil
	for b.Loop() {
		round()
	}
	for len(most) < 9 { // fewer have no median worth the name
		round()
	}
	slices.Sort(few)
	slices.Sort(most)
	b.ReportMetric(few[len(few)/2], "claims/s-of-1000")
	b.ReportMetric(most[len(most)/2], fmt.Sprintf("claims/s-of-%d", many))
	b.ReportMetric(most[len(most)/2]/few[len(few)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}

// A stocked is a queue that has so many jobs whenever it is measured.
type stocked struct {
	submitter *queue.Queue
	workers   []*queue.Queue // of four processes
}

func stock(b *testing.B, n int) *stocked {
	s := jobstest.Child(b)
	cfg := queue.Config{Lease: time.Minute}
	st := &stocked{submitter: jobstest.Queue(b, jobstest.Connect(b, s.URL()), cfg)}
	for range 4 {
		st.workers = append(st.workers, jobstest.Queue(b, jobstest.Connect(b, s.URL()), cfg))
	}
	st.fill(b, n)
	return st
}

func (st *stocked) fill(b *testing.B, n int) {
	began := time.Now()
	todo := make(chan bool)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range todo {
				jobstest.Submit(b, st.submitter, jobstest.Job())
			}
		})
	}
	for range n {
		todo <- true
	}
	close(todo)
	wg.Wait()
	if took := time.Since(began); took > time.Minute {
		b.Logf("%d jobs were submitted in %v", n, took.Round(time.Second))
	}
}

// claims returns how many jobs are claimed a second. What it took it replaces.
func (st *stocked) claims(b *testing.B) float64 {
	const each = 50
	claims := make(chan *queue.Claim, 4*len(st.workers)*each)
	var wg sync.WaitGroup
	began := time.Now()
	for _, q := range st.workers {
		for range 4 {
			wg.Go(func() {
				for range each {
					claims <- jobstest.Claim(b, q, "w")
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(began)
	close(claims)
	n := len(claims)
	for range 16 {
		wg.Go(func() {
			for c := range claims {
				settle(b, c, success)
			}
		})
	}
	wg.Wait()
	st.fill(b, n)
	return float64(n) / took.Seconds()
}
