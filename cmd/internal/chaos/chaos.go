// Package chaos breaks a pool on purpose, and counts what it lost.
//
// It runs a broker and workers as programs of their own, on one directory:
//
//	jobs ──▶ broker ◀── proxy ── worker ──▶ jail ──▶ agent
//	  ▲         ▲         ▲         ▲
//	  └ feed    └─────────┴─────────┴── faults, at random
//
// Jobs come in as fast as faults do, so that there is always something to
// break. In the end it stops everything and compares what is stored with what
// was wanted: one result for each job, every event once, nothing left running.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
)

// Options say what to break, and how often. All fields are required.
type Options struct {
	Program string // penstock, which is started as broker and as worker
	Dir     string // an existing directory for everything; existing files stay
	Jobs    int
	Faults  int
	Workers int
	Slots   int           // of each worker
	Lease   time.Duration // of the pool
	Seed    uint64        // of all random choices except the timing
	Kinds   []string      // names of the faults, from [Kinds]
	// Cluster is how many servers replicate the streams; zero is one broker, inside the
	// dispatcher.
	Cluster int
	// Previous is penstock of another release, empty for none. The dispatcher and every
	// other worker begin with it.
	Previous string
	// Every, if not zero, is the time from one fault to the next, however many jobs
	// have finished.
	Every time.Duration
	Log   io.Writer // the output of the broker and the workers
	// Connect returns the pool of the data directory, whose broker runs, or of the
	// named servers.
	Connect func(ctx context.Context, data, servers string) (Pool, error)
	// Progress, if not nil, is called now and then.
	Progress func(faults, finished int)
}

// A Pool is a connection to the broker's streams.
type Pool struct {
	Submit func(ctx context.Context, job jobs.Job) (id, session string, err error)
	Queue  *queue.Queue
	Log    *session.Log
	Store  *artifact.Store
	// Leader names the server of a cluster that leads some stream.
	Leader func(ctx context.Context) (string, error)
	Close  func() error
}

// A Report is the outcome of the jobs.
type Report struct {
	Seed    uint64         `json:"seed"`
	Jobs    int            `json:"jobs"`
	Workers int            `json:"workers"`
	Slots   int            `json:"slots"`
	Lease   string         `json:"lease"`
	Cluster int            `json:"cluster,omitempty"`
	Every   string         `json:"every,omitempty"`
	Seconds float64        `json:"seconds"`
	Faults  map[string]int `json:"faults"` // by kind
	// Skipped says why a kind of fault is not possible here.
	Skipped map[string]string `json:"skipped"`

	Results  int `json:"results"`  // jobs that ended in success, with the right patch
	Attempts int `json:"attempts"` // of the whole run
	Retried  int `json:"retried"`  // how often a job was given up, because too many workers died during its attempts, and retried by hand
	Events   int `json:"events"`   // that were stored
	Refused  int `json:"refused"`  // submissions for which the broker's disk had no room; they were repeated

	Lost          int `json:"lost"`           // jobs without a result
	Duplicates    int `json:"duplicates"`     // jobs that ended more than once
	EventsMissing int `json:"events_missing"` // gaps in sessions, and missing lines of agents
	EventsDouble  int `json:"events_double"`
	Stale         int `json:"stale"` // events of attempts that had lost their lease
	Left          int `json:"left"`  // processes, mounts and workspaces after the end

	Violations []string `json:"violations"` // descriptions of the violations
}

// Faultless reports whether every guarantee held.
func (r Report) Faultless() bool { return len(r.Violations) == 0 }

// run is the state of one Run.
type run struct {
	Options
	target   *target
	pool     Pool
	random   *rand.Rand // of the goroutine that submits
	report   Report
	jobs     []*job
	retried  map[string]int
	reported int            // jobs that had finished at the last report of progress
	harm     sync.WaitGroup // faults that are under way
}

// A job is a submitted job.
type job struct {
	n           int
	id, session string
	ticks       int // lines that its agent writes
}

// stall bounds how long the pool may make no progress at all.
const stall = 3 * time.Minute

// Run breaks a pool as o says, and reports the outcome. The error says that it could
// not run: violations are in the report.
func Run(ctx context.Context, o Options) (_ Report, err error) {
	began := time.Now()
	r := &run{Options: o, random: rand.New(rand.NewPCG(o.Seed, 0)), retried: map[string]int{}}
	r.report = Report{
		Seed: o.Seed, Jobs: o.Jobs, Workers: o.Workers, Slots: o.Slots, Lease: o.Lease.String(), Cluster: o.Cluster,
		Faults: map[string]int{}, Skipped: map[string]string{}, Violations: []string{},
	}
	if o.Every > 0 {
		r.report.Every = o.Every.String()
	}
	if err := r.possible(); err != nil {
		return r.report, err
	}
	for _, k := range r.Kinds {
		r.report.Faults[k] = 0
	}
	if r.target, err = begin(ctx, r.Options); err != nil {
		return r.report, err
	}
	defer r.target.kill()
	// The servers of a cluster may need some seconds to know all of them. The pool outlives
	// the time of one attempt.
	err = patiently(ctx, func(context.Context) (err error) {
		r.pool, err = o.Connect(ctx, r.target.data, r.target.servers())
		return err
	})
	if err != nil {
		return r.report, fmt.Errorf("connect to the pool: %w", err)
	}
	defer func() { err = errors.Join(err, r.pool.Close()) }()
	r.target.leader = r.pool.Leader
	if err = r.hurt(ctx); err == nil {
		err = r.check(ctx)
	}
	r.report.Seconds = time.Since(began).Seconds()
	return r.report, err
}

// hurt causes faults until every job has ended, and stops the workers.
func (r *run) hurt(ctx context.Context) error {
	var watch sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	defer watch.Wait()
	defer stop()
	watch.Go(func() { r.target.supervise(watching) })
	harm := r.breakThings
	if r.Every > 0 {
		harm = r.breakSteadily
	}
	if err := harm(ctx); err != nil {
		return err
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	stop()
	watch.Wait() // from now on programs end because they were asked to
	if err := r.target.drain(); err != nil {
		r.wrong("a worker that was asked to end: %v", err)
	}
	return nil
}

// possible leaves out the faults that this host, this user or this pool cannot have.
func (r *run) possible() error {
	single := func(try func() error) func() error {
		return func() error {
			if r.Cluster > 0 {
				return errors.New("is done to a single broker only")
			}
			return try()
		}
	}
	several := func() error {
		if r.Cluster == 0 {
			return errors.New("is done to a cluster only")
		}
		return nil
	}
	another := func() error {
		if r.Previous == "" {
			return errors.New("needs the program of another release")
		}
		return nil
	}
	for kind, try := range map[string]func() error{
		changeRelease: another,
		fullDisk:      single(r.tryDisk), clockJump: single(r.tryClock), cutServers: several, isolateServer: several,
	} {
		if !slices.Contains(r.Kinds, kind) {
			continue
		}
		if err := try(); err != nil {
			r.report.Skipped[kind] = err.Error()
			r.Kinds = slices.DeleteFunc(slices.Clone(r.Kinds), func(k string) bool { return k == kind })
		}
	}
	if len(r.Kinds) == 0 {
		return fmt.Errorf("none of the faults can be had here: %v", r.report.Skipped)
	}
	return nil
}

func (r *run) tryDisk() error {
	d, err := newDisk(filepath.Join(r.Dir, "disk"), 0)
	return errors.Join(err, d.close())
}

func (r *run) tryClock() error {
	cmd := exec.Command(r.Program, "version")
	cmd.SysProcAttr = apart()
	c, err := startTimed(cmd)
	if err != nil {
		return err
	}
	c.close()
	return cmd.Wait()
}

// breakThings submits jobs and causes faults, until both are done. Faults go on while
// no job is claimed for a while because the disk is full.
func (r *run) breakThings(ctx context.Context) error {
	defer r.harm.Wait()
	g, both := errgroup.WithContext(ctx)
	due := make(chan int, r.Faults+1)
	g.Go(func() error {
		for n := range due {
			if err := r.feed(both, n); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		defer close(due)
		random := rand.New(rand.NewPCG(r.Seed, 1))
		for done := range r.Faults {
			if err := r.pace(both, done, due); err != nil {
				return err
			}
			r.report.Faults[r.strike(ctx, random)]++
			pause := time.Duration(random.ExpFloat64() * float64(r.Lease) / 12)
			select {
			case <-both.Done():
				return context.Cause(both)
			case <-time.After(min(pause, r.Lease)):
			}
		}
		due <- r.Jobs
		return nil
	})
	return g.Wait()
}

// breakSteadily causes faults at fixed times, while the jobs are submitted evenly.
func (r *run) breakSteadily(ctx context.Context) error {
	defer r.harm.Wait()
	var faults atomic.Int64
	fed := make(chan error, 1)
	go func() { fed <- r.feedEvenly(ctx, &faults) }()
	random := rand.New(rand.NewPCG(r.Seed, 1))
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	for range r.Faults {
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), <-fed)
		case <-tick.C:
		}
		r.report.Faults[r.strike(ctx, random)]++
		faults.Add(1)
	}
	return <-fed
}

// feedEvenly submits the jobs over the time that all faults take.
func (r *run) feedEvenly(ctx context.Context, faults *atomic.Int64) error {
	began, all := time.Now(), time.Duration(r.Faults)*r.Every
	for n := 1; n <= r.Jobs; n++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(began.Add(all * time.Duration(n) / time.Duration(r.Jobs)))):
		}
		if err := r.feed(ctx, n); err != nil {
			return err
		}
		if r.Progress == nil || n%20 > 0 {
			continue
		}
		list, err := r.finished(ctx)
		if err != nil {
			return err
		}
		r.Progress(int(faults.Load()), len(list))
	}
	return nil
}

// pace keeps jobs and faults in step: it requests the jobs that are due after so many
// faults, and waits while too few of them have finished.
func (r *run) pace(ctx context.Context, faults int, wanted chan<- int) error {
	due, ahead := r.Jobs*faults/r.Faults, 2*r.Workers*r.Slots
	wanted <- min(due+ahead, r.Jobs)
	for began := time.Now(); ; {
		list, err := r.finished(ctx)
		if err != nil {
			return err
		}
		if r.Progress != nil && len(list) >= r.reported+20 {
			r.reported = len(list)
			r.Progress(faults, len(list))
		}
		if len(list) >= due-ahead || time.Since(began) > stall {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(r.Lease / 20):
		}
	}
}

func (r *run) finished(ctx context.Context) (list []jobs.Record, err error) {
	err = patiently(ctx, func(ctx context.Context) (err error) {
		list, err = r.pool.Queue.List(ctx, record.Filter{State: jobs.Finished})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the jobs: %w", err)
	}
	return list, nil
}

// feed submits jobs until there are n. A submission whose answer was lost is
// repeated: the key makes it the same job.
func (r *run) feed(ctx context.Context, n int) error {
	for len(r.jobs) < n {
		j := &job{n: len(r.jobs) + 1, ticks: 5 + r.random.IntN(25)}
		spec := r.target.spec(j, r.Seed)
		err := patiently(ctx, func(ctx context.Context) (err error) {
			j.id, j.session, err = r.pool.Submit(ctx, spec)
			if errors.Is(err, jobs.ErrFull) {
				r.report.Refused++
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("submit job %d: %w", j.n, err)
		}
		r.jobs = append(r.jobs, j)
	}
	return nil
}

// patiently retries a call that fails because of a fault.
func patiently(ctx context.Context, do func(ctx context.Context) error) error {
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(try)
		cancel()
		if err == nil || ctx.Err() != nil || time.Since(began) > stall {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
