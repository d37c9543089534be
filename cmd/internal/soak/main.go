// Command soak keeps a pool under changing load for a long time, and fails if anything
// grows that should not.
//
// It starts a server and two workers as programs of their own, on one data directory:
//
//	batches in waves, cron, a repository that moves on ──▶ serve ──▶ workers ──▶ jails
//	                                             webhooks ◀──┘          ▲
//	                                    kills and stops of one worker ──┘
//
// What is kept is kept for an hour, of events no more than 8 MiB, and caches are small, so that
// eviction is at work all the time, and retention in soaks of several hours. What a pool keeps
// of each job on the disk is measured for each job. The time is divided among three runs; between them
// everything ends, once by SIGTERM and once by SIGKILL, and starts again.
//
// Every few seconds it reads memory, descriptors and goroutines of the server and of the worker
// that is not hurt, and the disk, mounts and control groups of all. At the end it compares the
// medians of equal windows: see [measure.Growth]. What a worker sweeps every five minutes, whichever
// windows that falls into, is compared by its least between two sweeps. It prints a table, and writes a plot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
)

// options are the flags.
type options struct {
	program string
	last    time.Duration
	plot    string
	dir     string
}

func main() {
	measure.Main("soak", func(ctx context.Context, args []string, out io.Writer) error {
		var o options
		flags := flag.NewFlagSet("soak", flag.ContinueOnError)
		flags.StringVar(&o.program, "program", "bin/penstock", "the program that is soaked")
		flags.DurationVar(&o.last, "for", time.Hour, "how long all runs last together")
		flags.StringVar(&o.plot, "plot", "bin/soak.svg", "file for the plot")
		flags.StringVar(&o.dir, "dir", "", "empty directory to work in (default a temporary one, which is removed)")
		if err := flags.Parse(args); err != nil {
			return err
		}
		return run(ctx, o, out)
	})
}

// runs is among how many runs the time is divided, and windows into how many windows each
// of them: in each window the load rises and falls once.
const (
	runs    = 3
	windows = 6
)

func run(ctx context.Context, o options, out io.Writer) (err error) {
	done, err := measure.Begin("soak", &o.dir, &o.program)
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	p, err := newPool(ctx, o)
	if err != nil {
		return err
	}
	defer p.close()
	s := &samples{pool: p, began: time.Now(), window: o.last / (runs * windows)}
	fmt.Fprintf(out, "%d runs of %v in %s\n", runs, (o.last / runs).Round(time.Second), o.dir)
	for n := range runs {
		if err := p.soak(ctx, s, n); err != nil {
			return fmt.Errorf("run %d: %w; the log is %s", n+1, err, p.log.Name())
		}
	}
	verdicts := s.judge()
	tell(out, p.counts(), verdicts)
	if err := os.WriteFile(o.plot, s.plot(), 0o644); err != nil {
		return err
	}
	var grown []error
	for _, v := range verdicts {
		if v.grows {
			grown = append(grown, fmt.Errorf("%s grows by %.0f %% of its median in a run", v.Name, 100*v.growth))
		}
	}
	return errors.Join(append(grown, p.complaints()...)...)
}

// tell prints what was done, and what came of each series.
func tell(out io.Writer, done counts, verdicts []verdict) {
	fmt.Fprintf(out, "%d jobs in batches, %d without a result; %d firings of the schedule; %d webhooks delivered, %d refused on purpose; %d kills and stops of a worker\n\n",
		done.jobs, done.lost, done.fired, done.delivered, done.refused, done.faults)
	fmt.Fprintf(out, "%-26s %12s %12s %12s %9s %6s\n", "series", "least", "median", "most", "growth", "tau")
	for _, v := range verdicts {
		mark := ""
		if v.grows {
			mark = "  GROWS"
		}
		fmt.Fprintf(out, "%-26s %12s %12s %12s %8.0f%% %6.2f%s\n", v.Name, v.Unit.Text(v.least), v.Unit.Text(v.median), v.Unit.Text(v.most), 100*v.growth, v.Tau, mark)
	}
}
