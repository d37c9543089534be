package main

import (
	"iter"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// BenchmarkReads asks two pools in turn what grows with the jobs that are kept, if anything
// does: one keeps a thousand jobs, the other one a hundred thousand, or as many as
// PENSTOCK_BENCH_KEPT says. A tenth of them is queued. Each pool is a process of its own.
func BenchmarkReads(b *testing.B) {
	kept := []int{1000, size("PENSTOCK_BENCH_KEPT", 100_000)}
	pools := make([]*stockedPool, len(kept))
	for i, n := range kept {
		pools[i] = newStockedPool(b, false)
		pools[i].fill(n-n/10, n/10)
		pools[i].leads(n)
	}
	for _, read := range reads {
		took := make([][]time.Duration, len(pools))
		for round := range 21 {
			for i, p := range pools {
				ask := read.prepare(p)
				began := time.Now()
				ask()
				if round > 0 { // the first one opens a connection
					took[i] = append(took[i], time.Since(began))
				}
			}
		}
		for i, times := range took {
			slices.Sort(times)
			b.ReportMetric(ms(times[len(times)/2]), read.name+"-of-"+strconv.Itoa(kept[i])+"-p50-ms")
			b.ReportMetric(ms(times[len(times)-1]), read.name+"-of-"+strconv.Itoa(kept[i])+"-max-ms")
		}
	}
	for i, p := range pools {
		now, _ := p.memory()
		b.ReportMetric(now, "serve-of-"+strconv.Itoa(kept[i])+"-MiB")
	}
	b.ReportMetric(0, "ns/op")
}

// reads are the questions whose answers are about all jobs.
var reads = []struct {
	name    string
	prepare func(p *stockedPool) func()
}{
	{"why", func(p *stockedPool) func() {
		last := p.page(operation.ListRequest{State: jobs.Pending, Newest: true, Limit: 1})[0]
		return func() {
			_, err := p.client.Why(p.Context(), last.ID)
			p.must(err)
		}
	}},
	{"job-ls", func(p *stockedPool) func() {
		return func() { p.page(operation.ListRequest{Newest: true, Limit: 50}) }
	}},
	{"job-ls-failed", func(p *stockedPool) func() {
		return func() { p.page(operation.ListRequest{Outcome: jobs.Failure, Limit: 50}) }
	}},
	{"queue-ls", func(p *stockedPool) func() {
		return func() {
			all(p, p.client.Queues().List(p.Context()))
		}
	}},
	{"batch-ls", func(p *stockedPool) func() {
		return func() {
			all(p, p.client.Batches().List(p.Context()))
		}
	}},
	{"scrape", func(p *stockedPool) func() {
		return func() { p.get("/metrics") }
	}},
	{"short-id", func(p *stockedPool) func() {
		last := p.page(operation.ListRequest{Newest: true, Limit: 1})[0]
		return func() {
			_, err := p.client.Get(p.Context(), last.ID[24:])
			p.must(err)
		}
	}},
}

// all returns what a list has.
func all[T any](p *stockedPool, list iter.Seq2[T, error]) []T {
	p.Helper()
	var found []T
	for one, err := range list {
		p.must(err)
		found = append(found, one)
	}
	return found
}

// page returns the first page of a list.
func (p *stockedPool) page(r operation.ListRequest) []jobs.Record {
	p.Helper()
	var page []jobs.Record
	for rec, err := range p.client.List(p.Context(), r) {
		p.must(err)
		if page = append(page, rec); len(page) == r.Limit {
			break
		}
	}
	return page
}
