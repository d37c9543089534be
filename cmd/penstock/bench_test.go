package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox/none"
)

// benchPool is what "penstock run" opens: a broker in this process, which
// syncs every write to the disk, with a dispatcher and a worker.
func benchPool(b testing.TB, slots int, h pool.Hooks) *pool.Pool {
	b.Helper()
	a := &app{out: console.New(io.Discard, os.Getenv), err: console.New(os.Stderr, os.Getenv), cfg: cli.Defaults()}
	a.cfg.Data = b.TempDir()
	a.cfg.Worker.Drain = 0
	p, err := pool.Open(b.Context(), a.shell(), "run", h)
	if err != nil {
		b.Fatal(err)
	}
	w, err := localworker.New(b.Context(), a.shell(), p, slots, h)
	if err != nil {
		b.Fatal(err)
	}
	ctx := p.Start(context.Background(), p.Dispatcher.Run, p.API.Serve, w.Run)
	b.Cleanup(func() {
		if err := p.Close(); err != nil || context.Cause(ctx) != nil && context.Cause(ctx) != context.Canceled {
			b.Errorf("close: %v, %v", err, context.Cause(ctx))
		}
	})
	return p
}

// benchRepo is a small repository.
func benchRepo(b *testing.B) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "repo")
	for i := range 100 {
		name := filepath.Join(dir, fmt.Sprintf("d%d", i%10), fmt.Sprintf("f%d.txt", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, fmt.Appendf(nil, "file %d\n", i), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-qm", "base"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// noop is a job whose agent says one word.
func noop(repo string, isolation jobs.Isolation, backend string) jobs.Job {
	job := jobs.Job{
		Prompt: "nothing", Isolation: isolation, Repo: jobs.Repo{URL: repo},
		Agent: jobs.Agent{Name: "command", Command: []string{"/bin/echo", "done"}},
	}
	job.Sandbox.Backend = backend
	if backend == "none" {
		for _, f := range none.Unenforced() {
			job.Sandbox.AllowWeaker = append(job.Sandbox.AllowWeaker, string(f))
		}
	}
	return job
}

// BenchmarkLatency takes one job after the other through an idle pool.
func BenchmarkLatency(b *testing.B) {
	requireJail(b)
	claimed, first, settled := make(chan time.Time, 1), make(chan time.Time, 1), make(chan jobs.Record, 1)
	var h pool.Hooks
	h.Worker.Claimed = func(jobs.Record) { claimed <- time.Now() }
	h.Worker.Events = func(kind jobs.Kind, _ int, _ time.Duration) {
		if kind == jobs.OutputLine {
			first <- time.Now()
		}
	}
	h.Worker.Settled = func(rec jobs.Record, _ jobs.Result) { settled <- rec }
	p := benchPool(b, 1, h)
	job := noop(benchRepo(b), jobs.IsolationWorktree, "auto")
	var submit, claim, output, total []time.Duration
	one := func() {
		began := time.Now()
		if _, err := p.Dispatcher.Submit(b.Context(), job, "bench"); err != nil {
			b.Fatal(err)
		}
		submitted, at := time.Since(began), <-claimed
		said := <-first
		if rec := <-settled; rec.Outcome != jobs.Success {
			b.Fatalf("%s %s: %s", rec.Outcome, rec.Reason, rec.Message)
		}
		submit, claim = append(submit, submitted), append(claim, at.Sub(began))
		output, total = append(output, said.Sub(at)), append(total, time.Since(began))
		time.Sleep(20 * time.Millisecond) // so that the worker waits again
	}
	one() // fetches the repository, and makes the queue
	submit, claim, output, total = nil, nil, nil, nil
	for b.Loop() {
		one()
	}
	for len(total) < 100 { // fewer have no 99th percentile
		one()
	}
	for name, took := range map[string][]time.Duration{"submit": submit, "submit-to-claim": claim, "claim-to-first-output": output, "total": total} {
		slices.Sort(took)
		b.ReportMetric(ms(took[len(took)/2]), name+"-p50-ms")
		b.ReportMetric(ms(took[len(took)*99/100]), name+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkJobs counts the jobs that a pool finishes, from the first submit
// to the last verdict.
func BenchmarkJobs(b *testing.B) {
	requireJail(b)
	repo := benchRepo(b)
	for _, kind := range []struct {
		name string
		job  jobs.Job
	}{
		{"unjailed", noop("", jobs.IsolationNone, "none")},
		{"jailed", noop("", jobs.IsolationNone, "auto")},
		{"worktree", noop(repo, jobs.IsolationWorktree, "auto")},
	} {
		for _, slots := range []int{2, 8} {
			b.Run(fmt.Sprintf("%s/slots=%d", kind.name, slots), func(b *testing.B) { benchJobs(b, kind.job, slots) })
		}
	}
}

func benchJobs(b *testing.B, job jobs.Job, slots int) {
	settled := make(chan jobs.Record, b.N+1)
	var mu sync.Mutex
	stages := map[string]time.Duration{}
	var h pool.Hooks
	h.Worker.Settled = func(rec jobs.Record, _ jobs.Result) { settled <- rec }
	h.Worker.Stage = func(_ jobs.Record, name string, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		stages[name] += took
	}
	p := benchPool(b, slots, h)
	submit := func() {
		if _, err := p.Dispatcher.Submit(b.Context(), job, "bench"); err != nil {
			b.Error(err)
			settled <- jobs.Record{Outcome: jobs.Success}
		}
	}
	submit()
	<-settled
	clear(stages)
	self, children := processorTime(b, syscall.RUSAGE_SELF), processorTime(b, syscall.RUSAGE_CHILDREN)
	b.ResetTimer()
	var submitters sync.WaitGroup
	work := make(chan struct{})
	for range 8 {
		submitters.Go(func() {
			for range work {
				submit()
			}
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	for range b.N {
		if rec := <-settled; rec.Outcome != jobs.Success {
			b.Fatalf("%s %s: %s", rec.Outcome, rec.Reason, rec.Message)
		}
	}
	b.StopTimer()
	submitters.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(ms(processorTime(b, syscall.RUSAGE_SELF)-self)/float64(b.N), "own-cpu-ms")
	b.ReportMetric(ms(processorTime(b, syscall.RUSAGE_CHILDREN)-children)/float64(b.N), "children-cpu-ms")
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"provision", "agent", "jail", "collect"} {
		b.ReportMetric(ms(stages[name])/float64(b.N), name+"-ms")
	}
}

// processorTime is what this process, or its children that have ended, have used.
func processorTime(b *testing.B, who int) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEvents appends as a worker does whose agents write faster than the
// disk takes.
func BenchmarkEvents(b *testing.B) {
	for _, sessions := range []int{1, 50} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			p := benchPool(b, 0, pool.Hooks{})
			const batch = 64
			var lines []jobs.Event
			for i := range batch {
				lines = append(lines, event.New(event.OutputLine{Stream: "stdout", Text: fmt.Sprintf("line %d of a build, which says little", i)}))
			}
			var writers []*session.Writer
			for range sessions {
				id := jobs.NewID()
				w, err := p.Log.Writer(b.Context(), session.Source{Job: id, Session: id, Attempt: 1, Epoch: 1}, event.New(event.JobClaimed{}))
				if err != nil {
					b.Fatal(err)
				}
				writers = append(writers, w)
			}
			rounds := max(1, b.N/batch/sessions)
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, w := range writers {
				wg.Go(func() {
					for range rounds {
						if err := w.Append(b.Context(), lines...); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(rounds*batch*sessions)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
