// Package worker claims jobs and carries each to a verdict.
//
//	claim ─▶ workspace ─▶ jail ─▶ agent ─▶ events ─▶ collect ─▶ store ─▶ settle
//
// A [Worker] keeps nothing that another one would need: it may be killed at
// any time, on any host, and the pool goes on. What it promises:
//
//   - While it works on a job it holds the job's lease. When it has lost the
//     lease it ends the agent and publishes nothing more.
//   - The result is stored before the job is settled.
//   - What an attempt opens, the end of the attempt closes; what a kill left
//     is found and removed at the next start.
package worker

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Workspaces makes the directories that attempts work in.
type Workspaces interface {
	Prepare(ctx context.Context, req workspace.Request) (*workspace.Workspace, error)
	Sweep(ctx context.Context) (workspace.Swept, error)
	// Evict removes from the cache what no job uses, the oldest first, until
	// there is enough room, and returns how many commits and results of setup that were.
	Evict(ctx context.Context, enough func() bool) (int, error)
}

// Config is what a worker works with. Everything but the limits is needed.
type Config struct {
	Name   string   // of this worker, in records and events
	Slots  int      // jobs at once
	Queues []string // to claim from
	Labels []string // what it has that jobs may need
	// Drain is how long running jobs may go on after Run's context ended.
	Drain time.Duration

	Queue  *queue.Queue
	Log    *session.Log
	Store  *artifact.Store
	Spaces Workspaces
	// Workspace is the strategy that Spaces was opened with, for the policy.
	Workspace string
	Agents    *agent.Agents
	// Gates lead to the model APIs, by the API's name: "anthropic", "openai", "google".
	// An agent that needs one that is not here is refused.
	Gates map[string]*gate.Gate

	// Network is what jobs with an allow-list reach besides their own hosts,
	// and how. Its field Refused is the worker's.
	Network gate.NetworkConfig

	// Backend returns the jail by its name in a job; "auto" is the host's best.
	Backend func(name string) (sandbox.Backend, error)
	// Pool is the mark of whose jails this worker's are: it sweeps those with the same
	// one. See [JailLabel]. Without one it sweeps none.
	Pool string
	// Keepers are the backends whose jails a service of the host may still hold
	// after a worker was killed; Run asks them when it begins.
	Keepers []sandbox.Backend
	// Secret returns the value of a secret that a job names.
	Secret func(name string) (string, bool)
	// Keys are the worker's own secrets, by name: no event may contain them.
	Keys map[string]string
	// Signers are the keys one of which must have signed each job; none: jobs
	// need no signature.
	Signers []ed25519.PublicKey
	// Policy bounds what jobs may ask for, and adds to their jails. The zero
	// value does neither.
	Policy policy.Policy
	// Where says what the policy's patterns are relative to.
	Where policy.Where
	// Refused gets what jobs wanted and did not get, from any goroutine; nil:
	// nobody wants to know.
	Refused func(policy.Violation)
	// Diagnose says in words what an error of a jail comes from, where it
	// knows that, for the job's message; may be nil.
	Diagnose func(error) string
	// CommitAuthor, "Name <address>", replaces author and committer of what is
	// delivered; empty keeps them. CommitPlain leaves out the trailers that name
	// job and session.
	CommitAuthor string
	CommitPlain  bool
	// SetupCache is how long jobs take over what the setup of another wrote, if
	// it would write the same. 0 lets each job do it for itself.
	SetupCache time.Duration
	// Program is this program, which jails see as the command penstock; empty:
	// they have none.
	Program string
	// Typed reports why what an agent sets as its job's result does not fit the
	// job's schema.
	Typed func(schema, value json.RawMessage) error
	// Mounts are host directories that every jail sees read-only: toolchains.
	Mounts []sandbox.Mount
	// Reserve is what must be free on the disk of the workspaces for jobs to be
	// claimed. Those that run go on without.
	Reserve Reserve

	// DiskLimit is what a workspace may grow by whose job names no limit, where
	// the jail can tell; 0 is no limit.
	DiskLimit int64

	// Hangs are the limits beyond which an agent hangs.
	Hangs Hangs

	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks let a program watch a [Worker] without the worker knowing who
// watches. Every field may be nil. Hooks run on the job's own goroutine and
// must not block.
type Hooks struct {
	Claimed func(rec jobs.Record)
	// Released: the slot is free again, however the attempt ended.
	Released func(rec jobs.Record)
	// Stage reports how long one step of an attempt took: fetch, provision,
	// jail, agent, check, collect, publish, cleanup.
	Stage func(stage string, took time.Duration)
	// Settled reports the verdict on an attempt; rec is the record after it.
	Settled func(rec jobs.Record, result jobs.Result)
	Fenced  func(rec jobs.Record)
	Jailed  func(isolation jobs.Isolation, took time.Duration, err error)
	// Exited: an agent's process has ended, as its event run.exited says; full:
	// it reached its limit of memory.
	Exited func(rec jobs.Record, class string, full bool)
	// Hung: nothing is alive any more of an agent that hung; what and step are
	// those of its event hang.ended.
	Hung    func(rec jobs.Record, what, step string)
	Turn    func(rec jobs.Record) // the agent has ended a turn
	Limited func(rec jobs.Record) // the model API refused a call because of its rate
	// Violation: a jail wanted something that it did not get. Each thing is
	// told once for an attempt.
	Violation func(rec jobs.Record, v event.JailViolation)
	// Network: what an attempt with an allow-list used, when it has ended.
	Network func(rec jobs.Record, used event.JailNetwork)
	// Events: one event was stored; took is shared by those stored with it.
	Events  func(kind jobs.Kind, bytes int, took time.Duration)
	Dropped func(reason string)
	// Present: the broker has heard that the worker lives.
	Present func(at time.Time)
	// Leftover reports something that could not be cleaned up, or that an
	// earlier worker left and this one removed.
	Leftover func(what string)
	// Disk: what the disk has, every second; low says why no jobs are claimed.
	Disk func(d Disk, low error)
	// Workspaces: what those of the running jobs take together, on the host's
	// disks; from any goroutine.
	Workspaces func(bytes, inodes int64)
}

// A Worker claims and runs jobs. Make one with New.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	admission *admission
	tally     *tally

	busy    atomic.Int32  // slots in use
	news    chan struct{} // has a value while that is not told
	started time.Time
}

// New returns a worker that has not begun. It does no I/O.
func New(cfg Config) *Worker {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Hangs = cfg.Hangs.withDefaults()
	cfg.Queue.EndWith(cfg.Log.Finisher(cfg.Store.Result))
	return &Worker{
		cfg: cfg, log: cfg.Logger.With("worker", cfg.Name), admission: newAdmission(), tally: &tally{of: map[string]jobs.DiskUse{}},
		news: make(chan struct{}, 1), started: time.Now().UTC(),
	}
}

// Run removes what an earlier kill left, then claims and runs jobs until ctx
// ends. Running jobs may then finish for up to Config.Drain; what has not is
// handed back without counting. When Run returns, everything it started has
// stopped.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.sweep(ctx); err != nil {
		return fmt.Errorf("clean up after an earlier worker: %w", err)
	}
	w.lookAtDisk(ctx, true)
	work, cancel := drain(ctx, w.cfg.Drain)
	defer cancel()
	var g errgroup.Group
	for range w.cfg.Slots {
		g.Go(func() error {
			w.slot(ctx, work)
			return nil
		})
	}
	chores, stop := context.WithCancel(work)
	var beside sync.WaitGroup
	beside.Go(func() { w.sweepOften(chores) })
	beside.Go(func() { w.watchDisk(chores) })
	beside.Go(func() { w.present(ctx, chores) })
	err := g.Wait()
	stop()
	beside.Wait()
	return err
}

// slot claims one job after the other. ctx ends the claiming, work ends what
// was claimed.
func (w *Worker) slot(ctx, work context.Context) {
	for ctx.Err() == nil {
		admitted, done := w.admission.wait(ctx)
		claim, err := w.cfg.Queue.Claim(admitted, w.cfg.Name, w.cfg.Queues, w.cfg.Labels...)
		refused := admitted.Err() != nil
		done()
		if refused && err != nil {
			continue
		}
		if err != nil {
			w.log.Warn("claim", "err", err)
			pause(ctx, time.Second)
			continue
		}
		w.occupy(1)
		w.handle(work, claim)
		w.occupy(-1)
	}
}

// drain returns a context that outlives ctx by limit and then ends with
// jobs.ErrDraining.
func drain(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if pause(work, limit) {
			cancel(jobs.ErrDraining)
		}
	})
	return work, func() { stop(); cancel(nil) }
}

// pause waits for d and reports whether ctx lived that long.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *Worker) leftover(what string) {
	if w.cfg.Hooks.Leftover != nil {
		w.cfg.Hooks.Leftover(what)
	}
}
