// Command throttled shows that a pool keeps within the limit of a model API, and uses it: many agents, some of
// them the real Claude Code, want several times as many calls as the API allows.
//
//	submit, staggered ─▶ serve ─▶ workers ─▶ agents in jails ─▶ gates ─▶ an API that allows so many calls a second
//	                                                 counted here ◀──────────┘
//
// Server and workers are the program as a user starts it. The API is a script. It refuses what is beyond its limit
// with status 429 and the time to wait, and once, for as long as it is told, all calls, as when a quota is used up: then
// sessions park, and go on afterwards.
//
// The scripted agents are programs in jails that make their calls one after the other with curl, and try again after a
// refusal, as the libraries of providers do. Each agent makes as many calls as any other.
//
// The run fails if less than 90 % of the allowed calls were made or more than 5 % of all calls refused, both after the first
// minute; if there is a dead letter, or an attempt that counts against its job; or if the scripted jobs, which have
// all the same to do, end in another order than that of their submissions.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
)

// options are the flags.
type options struct {
	program      string
	agents, real int
	workers      int
	rate         float64
	last         time.Duration
	quota        time.Duration
	stagger      time.Duration
	took         time.Duration
	plot, dir    string
	judge        func(report) error // what a run has to show
}

func main() {
	measure.Main("throttled", func(ctx context.Context, args []string, out io.Writer) error {
		o, err := parse(args)
		if err == nil {
			_, err = run(ctx, o, out)
		}
		return err
	})
}

func parse(args []string) (o options, err error) {
	o.judge = report.judge
	flags := flag.NewFlagSet("throttled", flag.ContinueOnError)
	flags.StringVar(&o.program, "program", "bin/penstock", "the program that is measured")
	flags.IntVar(&o.agents, "agents", 100, "how many agents run at once")
	flags.IntVar(&o.real, "real", 20, "how many of them are the real Claude Code")
	flags.IntVar(&o.workers, "workers", 4, "how many workers share the agents; each finds its own pace")
	flags.Float64Var(&o.rate, "rate", 5, "how many calls the API allows in a second")
	flags.DurationVar(&o.last, "for", 6*time.Minute, "how long all calls take together at that rate")
	flags.DurationVar(&o.quota, "quota", 0, "how long the API allows no call, from a third of the time on (default: never)")
	flags.DurationVar(&o.stagger, "stagger", time.Second/2, "time between two submissions")
	flags.DurationVar(&o.took, "took", time.Second, "how long an answer of the API takes")
	flags.StringVar(&o.plot, "plot", "", "file for the plot (default none)")
	flags.StringVar(&o.dir, "dir", "", "empty directory to work in (default a temporary one, which is removed)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.workers < 1 || o.agents < o.workers || o.real < 0 || o.real > o.agents || o.rate <= 0 || o.calls() < 1 || flags.NArg() > 0 {
		return o, errors.New("-workers: at least one; -agents: one or more for each of them; -real: no more than that; -rate and -for: a call for each agent")
	}
	if _, err := exec.LookPath("claude"); o.real > 0 && err != nil {
		return o, fmt.Errorf("no Claude Code for -real %d: npm install -g @anthropic-ai/claude-code", o.real)
	}
	return o, nil
}

// calls is how many calls each agent makes.
func (o options) calls() int { return int(o.rate * o.last.Seconds() / float64(o.agents)) }

// run lets the agents do their work and tells what was seen.
func run(ctx context.Context, o options, out io.Writer) (r report, err error) {
	done, err := measure.Begin("throttled", &o.dir, &o.program)
	if err != nil {
		return r, err
	}
	defer func() { err = done(err) }()
	load, err := measure.Load()
	if err != nil {
		return r, err
	}
	fmt.Fprintf(out, "%d processors, a load of %.1f before; %d workers; %d agents, %d of them Claude Code, with %d calls each; %g calls a second are allowed; in %s\n",
		runtime.NumCPU(), load, o.workers, o.agents, o.real, o.calls(), o.rate, o.dir)
	a := newAPI(limit{rate: o.rate, burst: math.Max(2*o.rate, 1), quotaFrom: o.last / 3, quota: o.quota}, o.calls(), o.took)
	p, err := begin(ctx, o, a)
	if err == nil {
		if r, err = p.measure(ctx, out); err == nil {
			err = o.judge(r)
		}
		err = errors.Join(err, p.close())
	}
	if err != nil {
		err = fmt.Errorf("%w; the log is %s", err, filepath.Join(o.dir, "log"))
	}
	return r, err
}

// measure submits the jobs, waits for their ends, and tells what was seen meanwhile.
func (p *pool) measure(ctx context.Context, out io.Writer) (report, error) {
	s := &samples{pool: p, began: time.Now()}
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	sampled := make(chan error, 1)
	go func() {
		err := s.take(within)
		stop(err)
		sampled <- err
	}()
	if err := p.submitAll(within); err != nil {
		stop(err)
		return report{}, errors.Join(err, <-sampled)
	}
	if err := <-sampled; err != nil {
		return report{}, err
	}
	r, err := s.report(ctx)
	if err != nil {
		return r, err
	}
	r.tell(out)
	if p.plot != "" {
		err = os.WriteFile(p.plot, s.draw(), 0o644)
	}
	return r, err
}
