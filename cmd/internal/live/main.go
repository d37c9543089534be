// Command live lets many sessions run at once in one process of penstock serve, each in a jail, and
// looks for what is lost, and for what a session costs.
//
//	submit all ─▶ serve: broker, dispatcher, a worker with a slot for each ─▶ agents in jails
//	the same agents alone, before: how long they take by themselves
//
// An agent is a script that says a line now and then, as one does that thinks. The run fails if a job does
// not succeed, if a line is missing, twice or out of order, if the events of a session have a gap, or
// if not all sessions were live at the same moment. What the sessions took is told, and not judged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
)

// options are the flags.
type options struct {
	program         string
	sessions, lines int
	every           time.Duration
	dir             string
}

func main() {
	measure.Main("live", func(ctx context.Context, args []string, out io.Writer) error {
		o, err := parse(args)
		if err == nil {
			err = run(ctx, o, out)
		}
		return err
	})
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("live", flag.ContinueOnError)
	flags.StringVar(&o.program, "program", "bin/penstock", "the program that is measured")
	flags.IntVar(&o.sessions, "sessions", 1000, "how many sessions run at once")
	flags.IntVar(&o.lines, "lines", 20, "how many lines each agent says")
	flags.DurationVar(&o.every, "every", 5*time.Second, "time between two lines")
	flags.StringVar(&o.dir, "dir", "", "empty directory to work in (default a temporary one, which is removed)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.sessions < 1 || o.lines < 1 || o.every <= 0 || flags.NArg() > 0 {
		return o, errors.New("-sessions, -lines and -every must be above zero")
	}
	return o, nil
}

// script is what an agent does.
func (o options) script() []string {
	return []string{"sh", "-c", fmt.Sprintf("i=0; while test $i -lt %d; do i=$((i + 1)); echo line $i; sleep %g; done", o.lines, o.every.Seconds())}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	done, err := measure.Begin("live", &o.dir, &o.program)
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	load, err := measure.Load()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d processors, a load of %.1f before; %d sessions with %d lines each, %v apart; in %s\n", runtime.NumCPU(), load, o.sessions, o.lines, o.every, o.dir)
	alone, err := o.alone(ctx)
	if err != nil {
		return fmt.Errorf("the agents alone: %w", err)
	}
	r, err := o.together(ctx)
	if err != nil {
		return err
	}
	r.alone = alone
	r.tell(out)
	return r.judge()
}

// alone is how long the agents take at once, without a pool.
func (o options) alone(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range o.sessions {
		g.Go(func() error {
			args := o.script()
			return exec.CommandContext(ctx, args[0], args[1:]...).Run()
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

// together runs the agents in a pool.
func (o options) together(ctx context.Context) (r report, err error) {
	log, err := os.Create(filepath.Join(o.dir, "log"))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	data := filepath.Join(o.dir, "data")
	cmd := exec.Command(o.program, "serve", "--slots", fmt.Sprint(o.sessions))
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "PENSTOCK_DATA="+data, "PENSTOCK_LEASE=60s"), log, log
	server, err := measure.Serve(ctx, cmd, data, "live")
	defer func() { err = errors.Join(err, server.Close()) }()
	if err != nil {
		return r, err
	}
	r.sessions, r.lines = o.sessions, o.lines
	if r.idle, err = measure.Resident(server.Serve.PID()); err != nil {
		return r, err
	}
	began := time.Now()
	if err := o.submit(ctx, server); err != nil {
		return r, fmt.Errorf("submit: %w", err)
	}
	if err := o.await(ctx, server, &r); err != nil {
		return r, err
	}
	r.took = time.Since(began)
	if r.most, err = measure.MostResident(server.Serve.PID()); err != nil {
		return r, err
	}
	return r, r.read(ctx, server.Client)
}

// clients is how many submit at once.
const clients = 16

func (o options) submit(ctx context.Context, server *measure.Server) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for n := range o.sessions {
		g.Go(func() error {
			limit := jobs.Duration(time.Hour)
			_, err := server.Client.Submit(ctx, jobs.Job{
				Prompt: fmt.Sprint("session ", n), Isolation: jobs.IsolationNone, Agent: jobs.Agent{Name: "command", Command: o.script()}, Timeout: limit, IdleTimeout: limit,
			})
			return err
		})
	}
	return g.Wait()
}

// await waits until all jobs have finished, and measures when as many are live as ever.
func (o options) await(ctx context.Context, server *measure.Server, r *report) error {
	for measured := false; ; {
		executing, finished := 0, 0
		for q, err := range server.Client.Queues().List(ctx) {
			if err != nil {
				return fmt.Errorf("count the jobs: %w", err)
			}
			executing, finished = executing+q.Executing, finished+q.Finished
		}
		load, err := measure.Load()
		if err != nil {
			return err
		}
		r.live, r.load = max(r.live, executing), max(r.load, load)
		switch {
		case finished == o.sessions:
			return nil
		case executing == o.sessions && !measured:
			measured = true
			r.weigh(server.Serve.PID())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}
