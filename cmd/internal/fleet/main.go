// Command fleet takes many jobs through a pool from end to end, and measures how the pool takes
// that: the rate and the processor time of each job, memory of the server, and disk.
//
//	clients ──submit──▶ penstock serve ──▶ scripted workers ──▶ settled
//	   ▲                                                            │
//	   └─────── a job that has ended makes room for another ────────┘
//
// Server and broker are the program as a user starts it. Workers are scripted: they claim, keep
// the lease, report that they live, write a session's events, store the result and settle as a
// worker does, each over a connection of its own, and start no agent. So there can be many more
// of them than the host has room for jails. They live in few processes, which are this program
// again.
//
// Each tenth of the jobs is a window. The run fails if a job of later windows takes longer, or
// more processor time of the server, than one of the first ones: see [measure.Growth].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
)

// options are the flags.
type options struct {
	program              string
	jobs, clients, open  int
	workers, slots, host int
	script               script
	lease                time.Duration
	plot, dir            string
}

func main() {
	measure.Main("fleet", func(ctx context.Context, args []string, out io.Writer) error {
		o, err := parse(args)
		switch {
		case err != nil:
			return err
		case o.script.data != "":
			return workAll(ctx, o, os.Stdin, out)
		}
		return run(ctx, o, out)
	})
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.StringVar(&o.program, "program", "bin/penstock", "the program that is measured")
	flags.IntVar(&o.jobs, "jobs", 100_000, "how many jobs")
	flags.IntVar(&o.clients, "clients", 16, "how many submit at the same time")
	flags.IntVar(&o.open, "open", 1000, "how many jobs are submitted and not settled at most")
	flags.IntVar(&o.workers, "workers", 4, "how many workers")
	flags.IntVar(&o.slots, "slots", 16, "how many jobs each of them takes at once")
	flags.IntVar(&o.host, "host", 250, "how many workers one process has at most")
	flags.DurationVar(&o.script.work, "work", 0, "how long a job takes")
	flags.DurationVar(&o.script.slower, "slower", 0, "how much longer each job takes than the one before: a fault, to see that it is found")
	flags.DurationVar(&o.lease, "lease", 10*time.Second, "the lease of the pool")
	flags.StringVar(&o.plot, "plot", "", "file for the plot (default none)")
	flags.StringVar(&o.dir, "dir", "", "empty directory to work in (default a temporary one, which is removed)")
	flags.StringVar(&o.script.data, "of", "", "be a process with workers of the pool in this data directory, until the input ends")
	flags.IntVar(&o.script.first, "first", 0, "number of the first worker of this process")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.jobs < windows || o.clients < 1 || o.open < 1 || o.workers < 1 || o.slots < 1 || o.host < 1 || flags.NArg() > 0 {
		return o, fmt.Errorf("at least %d jobs, and one of everything else", windows)
	}
	return o, nil
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	done, err := measure.Begin("fleet", &o.dir, &o.program)
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	load, err := measure.Load()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d processors, a load of %.1f before; %d jobs, %d workers with %d slots each, %d clients, a lease of %v; in %s\n",
		runtime.NumCPU(), load, o.jobs, o.workers, o.slots, o.clients, o.lease, o.dir)
	p, err := begin(ctx, o)
	if err != nil {
		return fmt.Errorf("%w; the log is %s", err, filepath.Join(o.dir, "log"))
	}
	err = p.measure(ctx, out)
	if err = errors.Join(err, p.close()); err != nil {
		err = fmt.Errorf("%w; the log is %s", err, filepath.Join(o.dir, "log"))
	}
	return err
}

// measure takes the jobs through the pool and tells what was seen.
func (p *pool) measure(ctx context.Context, out io.Writer) error {
	s := newSamples(p)
	if err := s.sample(); err != nil {
		return err
	}
	sampling, enough := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { s.take(sampling) })
	err := p.submitAll(ctx)
	if err == nil {
		err = p.allSettled(ctx)
	}
	enough()
	sampler.Wait()
	if err == nil {
		err = s.sample()
	}
	if err != nil {
		return err
	}
	verdicts := s.judge()
	s.tell(out, verdicts)
	if p.plot != "" {
		if err := os.WriteFile(p.plot, s.draw(), 0o644); err != nil {
			return err
		}
	}
	wrong := []error{p.check(ctx)}
	for _, v := range verdicts {
		if v.grows {
			wrong = append(wrong, fmt.Errorf("not flat: the %s of a job grows by %.0f %% of its median", v.name, 100*v.growth))
		}
	}
	return errors.Join(wrong...)
}
