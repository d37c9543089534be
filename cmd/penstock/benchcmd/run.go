package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

const (
	// lookAfter is how long the trial waits before it asks what keeps its job.
	lookAfter = 3 * time.Second
	// answeredWithin is how long a submission under way may take when the command is
	// stopped: without the answer it is not known whether there is a job to cancel.
	answeredWithin = 5 * time.Second
	cleanWithin    = time.Minute
)

// A run is a load under way.
type run struct {
	load
	shell cli.Shell
	pool  *pool.Pool

	began time.Time

	mu      sync.Mutex
	open    map[string]bool // jobs that were submitted and have not ended, as far as is known
	submits []time.Duration // each one's time until its answer
	last    time.Time       // when the last of these came
	ended   []jobs.Record
	counts  map[jobs.Outcome]int // of these
	over    time.Time            // when the last of these was known
	errors  map[jobs.ErrorCode]int
	first   error // of these

	cancelled int
}

func newRun(shell cli.Shell, p *pool.Pool, l load) *run {
	return &run{load: l, shell: shell, pool: p, open: map[string]bool{}, counts: map[jobs.Outcome]int{}, errors: map[jobs.ErrorCode]int{}}
}

// do tries the pool, puts the load on it, cancels what is left, and reports.
func (r *run) do(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	defer cancel()
	if err := r.trial(limited); err != nil {
		return r.stop(limited, err)
	}
	r.shell.Progressf("%d jobs for queue %s, batch %s", r.jobs, r.job.Queue, r.job.Batch)
	r.pool.Outlast(r.shell)
	r.began = time.Now()
	r.put(limited)
	err := r.stop(limited, r.verdict())
	return errors.Join(tell(r.shell, r.report()), err)
}

// named returns the job of the load with a name.
func (l load) named(item string) jobs.Job {
	job := l.job
	job.Item = item
	return job
}

// trial runs one job to its end.
func (r *run) trial(ctx context.Context) error {
	id, err := r.submit(ctx, "trial")
	if err != nil {
		return err
	}
	r.shell.Progressf("trial job %s goes first", id)
	var said why.Constraint
	for {
		rec, err := client.Ask(ctx, r.pool.Client, operation.Wait, operation.WaitRequest{ID: id, For: jobs.Duration(lookAfter)})
		if err != nil {
			return err
		}
		if rec.State == jobs.Finished {
			return r.tried(ctx, rec)
		}
		standing, err := r.pool.Client.Why(ctx, id)
		switch {
		case err != nil:
			return err
		case slices.Contains(never, standing.Constraint):
			return cli.Fail(cli.ExitStopped, standing.Change+"; --queue names another queue", "trial job %s stays %s: %s; nothing else was submitted", id, standing.State, standing.Message)
		case standing.Constraint != said:
			said = standing.Constraint
			r.shell.Progressf("the trial job is %s: %s", standing.State, standing.Message)
		}
	}
}

// never are the constraints that nothing ends unless somebody changes the pool.
var never = []why.Constraint{why.KeptNoWorker, why.KeptNoQueue, why.KeptQueuePaused, why.KeptNeeds, why.KeptClosed}

// tried says how the trial job has ended.
func (r *run) tried(ctx context.Context, rec jobs.Record) error {
	delete(r.open, rec.ID)
	r.drop(ctx, rec)
	code := cli.OutcomeCode(map[jobs.Outcome]int{rec.Outcome: 1})
	if code == cli.ExitOK {
		return nil
	}
	return cli.Fail(code, jobs.Reasons[rec.Reason].Advice, "trial job %s: %s (%s): %s; nothing else was submitted", rec.ID, rec.Outcome, rec.Reason, rec.Message)
}

// submit submits a job, and knows from then on that it has to end.
func (r *run) submit(ctx context.Context, item string) (string, error) {
	answering, cancel := lingering(ctx, answeredWithin)
	defer cancel()
	made, err := r.pool.Submit(answering, r.named(item), "cli")
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || answering.Err() != nil { // then it may be stored all the same
		r.open[made.ID] = true
	}
	return made.ID, err
}

// lingering returns a context that ends a while after its parent.
func lingering(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(while):
			cancel()
		case <-late.Done():
		}
	})
	return late, func() { stop(); cancel() }
}

// put submits all jobs and waits for them, until ctx ends.
func (r *run) put(ctx context.Context) {
	showing, hide := context.WithCancel(ctx)
	var shown, submitting, waiting errgroup.Group
	shown.Go(func() error { r.show(showing); return nil })
	due, ids := make(chan int), make(chan string, r.jobs)
	submitting.Go(func() error { r.pace(ctx, due); return nil })
	for range r.clients {
		submitting.Go(func() error { r.submitDue(ctx, due, ids); return nil })
		waiting.Go(func() error { r.await(ctx, ids); return nil })
	}
	_ = submitting.Wait() // none returns an error: those of the pool are counted
	close(ids)
	_ = waiting.Wait()
	hide()
	_ = shown.Wait()
}

// pace says when each job is due.
func (r *run) pace(ctx context.Context, due chan<- int) {
	defer close(due)
	var tick <-chan time.Time
	if r.rate > 0 {
		ticker := time.NewTicker(time.Duration(float64(time.Second) / r.rate))
		defer ticker.Stop()
		tick = ticker.C
	}
	for i := range r.jobs {
		if tick != nil && i > 0 {
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
		select {
		case due <- i:
		case <-ctx.Done():
			return
		}
	}
}

// submitDue submits the jobs that are due, one after the other.
func (r *run) submitDue(ctx context.Context, due <-chan int, ids chan<- string) {
	for i := range due {
		began := time.Now()
		id, err := r.submit(ctx, strconv.Itoa(i+1))
		now := time.Now()
		if err != nil {
			r.fail(err)
			continue
		}
		r.mu.Lock()
		r.submits, r.last = append(r.submits, now.Sub(began)), now
		r.mu.Unlock()
		ids <- id // which has room for all
	}
}

// await waits for jobs in the order of their submission. The times are those of the
// records, so that nothing is lost where a later one has ended before.
func (r *run) await(ctx context.Context, ids <-chan string) {
	for id := range ids {
		for ctx.Err() == nil {
			rec, err := client.Ask(ctx, r.pool.Client, operation.Wait, operation.WaitRequest{ID: id, For: jobs.Duration(operation.MaxWait)})
			if err != nil && ctx.Err() == nil {
				r.fail(err)
			}
			if err != nil {
				break
			}
			if rec.State == jobs.Finished {
				r.end(rec)
				break
			}
		}
	}
}

// fail counts an error.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors[jobs.Code(err)]++
	if r.first == nil {
		r.first = err
	}
}

func (r *run) end(rec jobs.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, rec.ID)
	r.ended, r.over = append(r.ended, rec), time.Now()
	r.counts[rec.Outcome]++
}

// verdict is the error of a load that did not go well.
func (r *run) verdict() error {
	if r.first != nil {
		n := 0
		for _, count := range r.errors {
			n += count
		}
		return fmt.Errorf("%d errors, the first: %w", n, r.first)
	}
	code := cli.OutcomeCode(r.counts)
	for _, rec := range r.ended {
		if code != cli.ExitOK && rec.Outcome != jobs.Success && rec.Outcome != jobs.Skip {
			return cli.Fail(code, jobs.Reasons[rec.Reason].Advice, "job %s: %s (%s): %s", rec.ID, rec.Outcome, rec.Reason, rec.Message)
		}
	}
	return nil
}
