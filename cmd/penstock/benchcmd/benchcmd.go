// Package benchcmd is the command bench, a load test of the user's own pool.
//
//	trial ─▶ pace ──due──▶ clients: submit ──ids──▶ waiters ─▶ report
//	  └─ it does not succeed: nothing else is submitted
//
// One job goes first and alone: what refuses it, keeps it or makes it fail would do so to all
// of them. It is not counted. All jobs are of one batch, by which they are found afterwards.
// However a load ends, none of its jobs is left to run: what has not ended is cancelled.
package benchcmd

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
)

const (
	// unforced is how many jobs a load may have without --force. They stay in the pool's lists
	// and in its store for days.
	unforced = 10_000
	// most is how many a load may have at all: each is kept in memory until the end.
	most       = 1_000_000
	maxClients = 1000
	maxRate    = 1e6
)

// A load is what is asked of a pool.
type load struct {
	jobs, clients int
	rate          float64 // most submissions a second; 0: as many as the clients make
	timeout       time.Duration
	job           jobs.Job // what each of them is, besides its name
}

// New returns the command bench.
func New(shell cli.Shell) *cobra.Command {
	l := load{jobs: 100, clients: 4, rate: 50, timeout: 10 * time.Minute}
	l.job.Queue = "bench"
	var isolation string
	var force bool
	cmd := &cobra.Command{
		Use: "bench [flags] [-- COMMAND ARG…]", Short: "Put a load of small jobs on a pool, and measure how it takes them",
		Long: `Bench submits jobs that do nothing, or run COMMAND, to a pool that runs, waits until they
have ended, and prints how many were submitted and finished in a second, how long a submission
took, how long jobs waited for a worker, and how long they ran. It costs no model, but the
slots of the workers that serve the queue: do not use that of work that must not wait.

The queue is "bench", which a worker serves if it is told to (--queues default,bench). A trial
job goes first. If it does not succeed, or no worker can take it, nothing else is submitted.
Role submitter is enough. Where the pool is reached over HTTP, its limit on requests of one
credential (serve --http-rate) is measured, too.

A second signal ends the command at once. Otherwise, however it ends, jobs that have not
finished are cancelled. What a role operator may remove of failed jobs, their dead letters,
is removed. Records, events and results stay as long as those of other jobs do.

The exit code is 0 when every job has succeeded, 3 or 4 when one has not, and 8 when they
have not finished within --timeout. When jobs could not be submitted it is that of the first
error.`,
		Example: `  penstock bench
  penstock bench --jobs 1000 --rate 50 --queue default
  penstock bench --isolation worktree --repo . --clients 16 --rate 0 -- sh -c 'echo hi > new.txt'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := input.SplitDash(cmd.Flags(), args)
			if len(before) > 0 {
				return cli.Usage("write a command behind --", "bench takes no argument %q", before[0])
			}
			l.job.Isolation = jobs.Isolation(isolation)
			if err := l.complete(command, force); err != nil {
				return err
			}
			return measure(cmd.Context(), shell, l)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&l.jobs, "jobs", l.jobs, "jobs to submit, besides the trial; more than 10000 need --force")
	flags.Float64Var(&l.rate, "rate", l.rate, "most submissions a second; 0: as many as the clients make")
	flags.IntVar(&l.clients, "clients", l.clients, "submissions at once")
	flags.StringVar(&l.job.Queue, "queue", l.job.Queue, "queue to submit to")
	flags.Var(input.OneOf(&isolation, input.Strings(jobs.IsolationNone, jobs.IsolationWorktree, jobs.IsolationContainer)...), "isolation", "none (default without --repo), worktree (default with it) or container")
	flags.StringVar(&l.job.Repo.URL, "repo", "", "repository that each job begins from: a path or URL (default none)")
	flags.DurationVar(&l.timeout, "timeout", l.timeout, "cancel what has not finished after this long")
	flags.BoolVar(&force, "force", false, "submit more than 10000 jobs")
	return cmd
}

// complete checks the load, and fills in what was not said.
func (l *load) complete(command []string, force bool) (err error) {
	switch {
	case l.jobs < 1 || l.jobs > most:
		return cli.Usage("", "--jobs %d: must be 1 to %d", l.jobs, most)
	case l.jobs > unforced && !force:
		return cli.Usage("--force submits them all the same; each stays in the lists of the pool for as long as retention.jobs says", "--jobs %d: more than %d jobs need --force", l.jobs, unforced)
	case l.clients < 1 || l.clients > maxClients:
		return cli.Usage("", "--clients %d: must be 1 to %d", l.clients, maxClients)
	case l.rate != 0 && (math.IsNaN(l.rate) || l.rate < 1/maxRate || l.rate > maxRate):
		return cli.Usage("0 is as many as the clients make", "--rate %g: must be 0, or %g to %.0f", l.rate, 1/maxRate, maxRate)
	case l.timeout <= 0:
		return cli.Usage("", "--timeout %v: must be more than nothing", l.timeout)
	}
	if l.job.Repo.URL, err = jobflags.Repository(l.job.Repo.URL); err != nil {
		return err
	}
	if len(command) == 0 {
		command = []string{"true"}
	}
	l.job.Agent = jobs.Agent{Name: "command", Command: command}
	if l.job.Isolation == "" && l.job.Repo.URL == "" {
		l.job.Isolation = jobs.IsolationNone
	}
	l.job.Batch = "bench-" + jobs.NewID()
	l.job.Prompt = "penstock bench" // which lists of jobs show
	l.job.Retry.MaxAttempts = 1     // a job that is tried again would be measured as a slow one
	l.job = l.job.WithDefaults()
	return l.job.Validate()
}

// measure puts the load on the pool, and tells how it took that.
func measure(ctx context.Context, shell cli.Shell, l load) error {
	return pool.With(ctx, shell, "bench", func(p *pool.Pool) error {
		if p.Own() {
			return cli.Fail(cli.ExitUnreachable, "penstock serve --slots 2 --queues default,"+l.job.Queue+" runs one", "no pool runs on %s", shell.Config.Data)
		}
		return newRun(shell, p, l).do(ctx)
	})
}

// errTimeout is the cause with which the context of a load ends that takes too long.
var errTimeout = errors.New("not finished in time")
