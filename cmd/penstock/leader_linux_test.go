package main

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// BenchmarkLeader measures what jobs cost the process that leads: its memory with so many
// jobs queued, or finished and kept, and how long it is away when it is killed. Once the
// broker is in the same process, and once it is one of its own. PENSTOCK_BENCH_QUEUED and
// PENSTOCK_BENCH_FINISHED say how many jobs there are.
func BenchmarkLeader(b *testing.B) {
	for _, n := range []struct {
		name             string
		finished, queued int
	}{
		{"none", 0, 0}, {"queued", 0, size("PENSTOCK_BENCH_QUEUED", 100_000)}, {"finished", size("PENSTOCK_BENCH_FINISHED", 100_000), 0},
	} {
		for _, where := range []string{"with-broker", "alone"} {
			b.Run(fmt.Sprintf("%s=%d/%s", n.name, n.finished+n.queued, where), func(b *testing.B) {
				benchLeader(b, where == "alone", n.finished, n.queued)
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func benchLeader(b *testing.B, alone bool, finished, queued int) {
	p := newStockedPool(b, alone)
	p.fill(finished, queued)
	p.leads(finished + queued)
	p.note(b, "filled")
	var queues []string
	for n := range stockQueues {
		queues = append(queues, fmt.Sprint("q", n))
	}
	q := jobstest.Queue(b, p.nc, queue.Config{Lease: time.Hour})
	p.stop(syscall.SIGKILL)
	began := time.Now()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	first, many := make(chan time.Duration, 1), make(chan time.Duration, 1)
	// More than lanes that were filled before the kill have.
	const most = 2 * 16 * stockQueues
	go func() {
		for n := 0; queued > most && n < most; n++ {
			if _, err := q.Claim(ctx, "w", queues); err != nil {
				return
			}
			if n == 0 {
				first <- time.Since(began)
			}
		}
		many <- time.Since(began)
	}()
	b.ReportMetric(p.serve().Seconds(), "serving-s")
	if queued > most {
		b.ReportMetric((<-first).Seconds(), "first-claim-s")
		b.ReportMetric((<-many).Seconds(), fmt.Sprintf("%d-claims-s", most))
	}
	p.leads(finished + queued)
	b.ReportMetric(time.Since(began).Seconds(), "knows-all-s")
	p.note(b, "started")
	time.Sleep(75 * time.Second) // it gives back what it took to start, in some steps
	p.note(b, "rested")
}

// note reports the memory of the pool's process.
func (p *stockedPool) note(b *testing.B, what string) {
	now, peak := p.memory()
	b.ReportMetric(now, what+"-MiB")
	b.ReportMetric(peak, what+"-peak-MiB")
}
