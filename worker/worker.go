// Package worker claims jobs and carries each to a verdict.
//
//	claim ─▶ workspace ─▶ jail ─▶ agent ─▶ events ─▶ collect ─▶ store ─▶ settle
//
// A [Worker] keeps no state that another one would need: it may be killed at any time,
// on any host, and the pool continues. It promises:
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
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/admission"
	"github.com/penstock-run/penstock/worker/internal/diskspace"
	"github.com/penstock-run/penstock/worker/internal/labels"
	"github.com/penstock-run/penstock/worker/internal/lifetime"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/sharedlimits"
	"github.com/penstock-run/penstock/worker/internal/watchdog"
	"github.com/penstock-run/penstock/worker/policy"
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

// Config is everything that a worker works with. All fields but the limits are
// required.
type Config struct {
	Name string // of this worker, in records and events
	// Release is that of the program, for those who look after a pool of several.
	Release string
	Slots   int      // jobs at once
	Queues  []string // to claim from
	Labels  []string // its labels, which jobs may need
	// Drain is how long running jobs may continue after Run's context has ended.
	Drain time.Duration

	Queue  *queue.Queue
	Log    *session.Log
	Store  *artifact.Store
	Spaces Workspaces
	// Workspace is the strategy that Spaces was opened with, for the policy.
	Workspace string
	Agents    *agent.Agents
	// Gates lead to the model APIs, by the API's name: "anthropic", "openai", "google".
	// An agent that needs one that is not here, or has no key, is refused.
	Gates map[string]*gate.Gate

	// Network is the network of jobs with an allow-list, besides their own hosts. The
	// worker sets its field Refused.
	Network gate.NetworkConfig

	// Backend returns the jail by its name in a job; "auto" is the host's best.
	Backend func(name string) (sandbox.Backend, error)
	// Pool marks this worker's jails: it sweeps those with the same mark, see package
	// poolmark. Without a mark it sweeps none.
	Pool string
	// Keepers are the backends whose jails a service of the host may still hold
	// after a worker was killed; Run asks them when it begins.
	Keepers []sandbox.Keeper
	// Secret returns the value of a secret that a job names.
	Secret func(name string) (string, bool)
	// Keys are the worker's own secrets: no event may contain them. Nil: it has none.
	Keys *redact.Common
	// Signers are the keys one of which must have signed each job; none: jobs
	// need no signature.
	Signers []ed25519.PublicKey
	// ReceiptKey signs what attempts of jobs with a repository were; see package receipt. Nil:
	// there are no receipts.
	ReceiptKey ed25519.PrivateKey
	// Policy bounds jobs, and adds to their jails. The zero value does neither.
	Policy policy.Policy
	// Where is the base of relative patterns in the policy.
	Where jailpolicy.Where
	// Refused is called with each refused request of a job, from any goroutine; may be
	// nil.
	Refused func(jailpolicy.Violation)
	// Diagnose explains an error of a jail, if it can, for the job's message; may be
	// nil.
	Diagnose func(error) string
	// CommitAuthor, "Name <address>", replaces author and committer of delivered
	// commits; empty keeps them. CommitPlain leaves out the trailers that name job and
	// session.
	CommitAuthor string
	CommitPlain  bool
	// SetupCache is how long jobs reuse the output of another job's setup, if it is the
	// same. 0 runs setup for each job.
	SetupCache time.Duration
	// Program is this program, which jails see as the command penstock; empty:
	// they have none.
	Program string
	// Typed reports why a result that an agent sets does not match the job's schema.
	Typed func(schema, value json.RawMessage) error
	// Mounts are host directories that every jail sees read-only: toolchains.
	Mounts []sandbox.Mount
	// Reserve is the free space on the disk of the workspaces below which the worker
	// claims no jobs. Running jobs continue.
	Reserve Reserve

	// DiskLimit bounds the growth of a workspace whose job names no limit, if the jail
	// can measure it; 0 is no limit.
	DiskLimit int64

	// Hangs are the limits beyond which an agent hangs.
	Hangs Hangs

	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks let a program observe a [Worker] without the worker knowing the observer. Every
// field may be nil. Hooks run on the job's own goroutine and must not block.
type Hooks struct {
	Claimed func(rec jobs.Record)
	// Released: the slot is free again, however the attempt ended.
	Released func(rec jobs.Record)
	// Stage reports how long one step of an attempt took: fetch, provision,
	// jail, agent, check, collect, publish, cleanup.
	Stage func(rec jobs.Record, stage string, took time.Duration)
	// Settled reports the verdict on an attempt; rec is the record after it.
	Settled func(rec jobs.Record, result jobs.Result)
	Fenced  func(rec jobs.Record)
	Jailed  func(isolation jobs.Isolation, took time.Duration, err error)
	// Exited: an agent's process has ended, as its event run.exited says; full:
	// it reached its limit of memory.
	Exited func(rec jobs.Record, class string, full bool)
	// Hung: an agent that hung has ended with all its processes; what and step are
	// those of its event hang.ended.
	Hung    func(rec jobs.Record, what, step string)
	Turn    func(rec jobs.Record) // the agent has ended a turn
	Limited func(rec jobs.Record) // the model API refused a call because of its rate
	// Budget: most of the job's budget is spent, or all of it; on the goroutine of a call.
	Budget func(rec jobs.Record, spent bool)
	// Limits: how the key of an API is used, after each change and every few seconds.
	Limits func(api string, now gate.Standing)
	// Violation: a jail was refused something. Each refusal is reported once in an
	// attempt.
	Violation func(rec jobs.Record, v event.JailViolation)
	// Network: the usage of an attempt with an allow-list, when it has ended.
	Network func(rec jobs.Record, used event.JailNetwork)
	// Events: one event was stored; took is the time for all events stored with it.
	Events  func(kind jobs.Kind, bytes int, took time.Duration)
	Dropped func(reason string, n int) // of events, as recorder.Hooks says
	// Present: the broker has heard that the worker lives.
	Present func(at time.Time)
	// Draining: the worker claims nothing more, or claims again with nil.
	Draining func(drain *why.Drain)
	// Leftover reports something that could not be cleaned up, or that an
	// earlier worker left and this one removed.
	Leftover func(what string)
	// Disk: the space of the disk, every second; low says why no jobs are claimed.
	Disk func(d Disk, low error)
	// Workspaces: the size of the running jobs' workspaces together, on the host's
	// disks; from any goroutine.
	Workspaces func(bytes, inodes int64)
}

// Hangs says when an agent hangs, besides idle_timeout, which is the job's.
type Hangs = watchdog.Hangs

// DefaultHangs are the limits of a worker that sets none.
func DefaultHangs() Hangs { return watchdog.DefaultHangs() }

// A Worker claims and runs jobs. Make one with New.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	admission *admission.Admission
	lifetime  *lifetime.Lifetime
	tally     *diskspace.Tally

	labels  *labels.Labels
	busy    atomic.Int32  // slots in use
	news    chan struct{} // has a value while a change is not reported
	started time.Time

	forbidden sync.Once // reported: the role of the worker may not read what is asked of it
}

// New returns a worker that has not begun. It does no I/O.
func New(cfg Config) *Worker {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Keys == nil {
		cfg.Keys = new(redact.Common)
	}
	cfg.Hangs = cfg.Hangs.WithDefaults()
	cfg.Queue.EndWith(cfg.Log.Finisher(cfg.Store.Result))
	return &Worker{
		cfg: cfg, log: cfg.Logger.With("worker", cfg.Name), admission: admission.New(cfg.Hooks.Draining), lifetime: lifetime.New(lifetime.Limits{}), tally: diskspace.NewTally(),
		labels: labels.New(cfg.Labels, cfg.Agents.Labels), news: make(chan struct{}, 1), started: time.Now().UTC(),
	}
}

// A Lifetime bounds the life of a worker.
type Lifetime = lifetime.Limits

// EndAfter has Run end by itself: when the worker has claimed as many jobs as it may, or has
// had none for too long. Running jobs finish first, however long they take. Call it before Run.
func (w *Worker) EndAfter(limits Lifetime) { w.lifetime = lifetime.New(limits) }

// Run removes leftovers of an earlier kill, then claims and runs jobs until ctx ends.
// Running jobs may then finish for up to Config.Drain; the others are requeued without
// counting. When Run returns, everything that it started has stopped.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.sweep(ctx); err != nil {
		return fmt.Errorf("clean up after an earlier worker: %w", err)
	}
	w.lookAtDisk(ctx, true)
	w.labels.Look()
	work, cancel := lifetime.Drain(ctx, w.cfg.Drain)
	defer cancel()
	ending := context.AfterFunc(ctx, func() { w.setDrain(&why.Drain{By: "signal", At: time.Now().UTC(), Ends: true}) })
	defer ending()
	claiming, enough := context.WithCancel(ctx)
	defer enough()
	w.lifetime.Begin(func(reached string) {
		w.setDrain(&why.Drain{By: reached, At: time.Now().UTC(), Ends: true})
		enough()
	})
	defer w.lifetime.Stop()
	var g errgroup.Group
	for range w.cfg.Slots {
		g.Go(func() error {
			w.slot(claiming, work)
			return nil
		})
	}
	chores, stop := context.WithCancel(work)
	var beside sync.WaitGroup
	beside.Go(func() { w.sweepOften(chores) })
	beside.Go(func() { w.watchDisk(chores) })
	beside.Go(func() { w.labels.Watch(chores, w.admission.Again) })
	beside.Go(func() { w.present(chores) })
	beside.Go(func() {
		sharedlimits.Share(chores, ratelimit.Of(w.cfg.Queue.Workers()), w.cfg.Gates, w.cfg.Hooks.Limits)
	})
	err := g.Wait()
	stop()
	beside.Wait()
	return err
}

// slot claims one job after the other. ctx ends the claiming, work ends what
// was claimed.
func (w *Worker) slot(ctx, work context.Context) {
	for ctx.Err() == nil && w.lifetime.Take() {
		claim := w.claim(ctx)
		if claim == nil {
			return
		}
		w.handle(work, claim)
		w.occupy(-1)
		w.lifetime.Done()
	}
}

// claim waits until there is a job; nil: ctx has ended before.
func (w *Worker) claim(ctx context.Context) *queue.Claim {
	for ctx.Err() == nil {
		admitted, done := w.admission.Wait(ctx)
		claim, err := w.cfg.Queue.Claim(admitted, w.cfg.Name, w.cfg.Queues, w.labels.All()...)
		refused := admitted.Err() != nil
		if err == nil {
			w.occupy(1) // before done: see tell
			w.lifetime.Claimed()
		}
		done()
		if err == nil {
			return claim
		}
		if !refused {
			w.log.Warn("claim", "err", err)
			pause.For(ctx, time.Second)
		}
	}
	return nil
}

func (w *Worker) leftover(what string) {
	if w.cfg.Hooks.Leftover != nil {
		w.cfg.Hooks.Leftover(what)
	}
}
