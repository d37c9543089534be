// Command benchpeers measures job queues beside each other: how long a job
// takes from its submit to its start on an idle queue, and how many jobs that
// do nothing are completed a second.
//
// Each queue runs on a server that is started for it, in a directory of its
// own, and that acknowledges a write once it is on the disk. The queues are
// measured in turn, round after round, so that what else the machine does hits
// all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A peer is one queue on its server.
type peer interface {
	// open connects, and starts as many workers. Each calls started with the
	// number that the job was submitted with.
	open(ctx context.Context, workers int, started func(n int)) error
	submit(ctx context.Context, n int) error
	// done reports whether the server knows as many jobs to be completed.
	done(ctx context.Context, jobs int) (bool, error)
	spent() spent
	close()
}

// A bulk is a peer that takes many jobs in one submission: those with the numbers from
// from on, to that before to.
type bulk interface {
	submitMany(ctx context.Context, from, to int) error
}

// A contender is a queue that may be measured here, or not.
type contender struct {
	name    string
	version string
	start   func(ctx context.Context, dir string) (peer, error)
}

// errMissing says that a server is not installed.
var errMissing = errors.New("is not installed")

type sizes struct{ rounds, latency, jobs, workers, submitters int }

func main() {
	if len(os.Args) == 3 && os.Args[1] == "broker" {
		broker(os.Args[2])
		return
	}
	var s sizes
	flag.IntVar(&s.rounds, "rounds", 3, "how often each queue is measured, in turn")
	flag.IntVar(&s.latency, "latency-jobs", 200, "jobs of a round that are submitted one after the other")
	flag.IntVar(&s.jobs, "jobs", 3000, "jobs of a round that are submitted at once")
	flag.IntVar(&s.workers, "workers", 64, "workers of each queue")
	flag.IntVar(&s.submitters, "submitters", 16, "submitters of each queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		stop()
		os.Exit(1)
	}
}

// A result is what was measured of one contender, over all rounds.
type result struct {
	contender
	waits []time.Duration
	rates []float64
	spent spent
	skip  error
}

func run(ctx context.Context, s sizes) error {
	fmt.Printf("machine    %s/%s, %d processors\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	fmt.Printf("load       %s\n", firstLine("cat", "/proc/loadavg"))
	fmt.Printf("go         %s\n", runtime.Version())
	fmt.Printf("date       %s\n", time.Now().UTC().Format(time.DateOnly))
	fmt.Printf("size       %+v\n", s)
	var results []*result
	for _, c := range contenders() {
		results = append(results, &result{contender: c})
	}
	for range s.rounds {
		for _, r := range results {
			if r.skip != nil {
				continue
			}
			err := r.round(ctx, s)
			if errors.Is(err, errMissing) {
				r.skip = err
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	fmt.Printf("\n%-42s %-44s %9s %9s %9s %20s\n", "", "", "", "", "", "processor ms a job")
	fmt.Printf("%-42s %-44s %9s %9s %9s %10s %9s\n", "queue", "versions", "p50 ms", "p99 ms", "jobs/s", "server", "clients")
	for _, r := range results {
		if r.skip != nil {
			fmt.Printf("%-42s skipped: %v\n", r.name, r.skip)
			continue
		}
		slices.Sort(r.waits)
		slices.Sort(r.rates)
		all := time.Duration(s.rounds * s.jobs)
		fmt.Printf("%-42s %-44s %9.1f %9.1f %9.0f %10.2f %9.2f\n", r.name, r.version,
			ms(r.waits[len(r.waits)/2]), ms(r.waits[len(r.waits)*99/100]), r.rates[len(r.rates)/2],
			ms(r.spent.server/all), ms(r.spent.clients/all))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// round measures a contender once, on a server that is new.
func (r *result) round(ctx context.Context, s sizes) error {
	dir, err := os.MkdirTemp("", "benchpeers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := r.start(ctx, dir)
	if err != nil {
		return err
	}
	defer p.close()
	begun := make(chan int, s.jobs+s.latency)
	if err := p.open(ctx, s.workers, func(n int) { begun <- n }); err != nil {
		return err
	}
	if err := one(ctx, p, 0, begun); err != nil { // makes what is made on first use
		return err
	}
	for n := 1; n <= s.latency; n++ {
		time.Sleep(10 * time.Millisecond) // so that the workers wait again
		began := time.Now()
		if err := one(ctx, p, n, begun); err != nil {
			return err
		}
		r.waits = append(r.waits, time.Since(began))
	}
	before := p.spent()
	rate, err := throughput(ctx, p, s, s.latency+1)
	took := p.spent().since(before)
	r.rates = append(r.rates, rate)
	r.spent = spent{r.spent.server + took.server, r.spent.clients + took.clients}
	return err
}

// one submits a job and waits until it has started.
func one(ctx context.Context, p peer, n int, begun <-chan int) error {
	if err := p.submit(ctx, n); err != nil {
		return err
	}
	select {
	case got := <-begun:
		if got != n {
			return fmt.Errorf("job %d started, want %d", got, n)
		}
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("job %d did not start in a minute", n)
	}
}

// throughput submits jobs by many at once, while the workers work, until the
// server knows all of them to be completed. before is how many were.
func throughput(ctx context.Context, p peer, s sizes, before int) (float64, error) {
	began := time.Now()
	step, submit := 1, func(from, _ int) error { return p.submit(ctx, from) }
	if b, ok := p.(bulk); ok {
		step, submit = 100, func(from, to int) error { return b.submitMany(ctx, from, to) }
	}
	work, failed := make(chan int), make(chan error, s.submitters)
	for range s.submitters {
		go func() {
			for from := range work {
				if err := submit(from, min(from+step, before+s.jobs)); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for from := before; from < before+s.jobs; from += step {
		select {
		case work <- from:
		case err := <-failed:
			return 0, err
		}
	}
	close(work)
	for {
		done, err := p.done(ctx, before+s.jobs)
		if err != nil {
			return 0, err
		}
		if done {
			return float64(s.jobs) / time.Since(began).Seconds(), nil
		}
		if time.Since(began) > 10*time.Minute || ctx.Err() != nil {
			return 0, fmt.Errorf("%d jobs are not completed after %v", s.jobs, time.Since(began))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func firstLine(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
