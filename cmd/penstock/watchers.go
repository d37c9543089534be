package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/metrics"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/gate"
)

// pulse is how often a service measures its way to the broker.
const pulse = 10 * time.Second

// watchers count what a service does, and show it on its admin address.
type watchers struct {
	info       metrics.Info
	registry   *prometheus.Registry
	dispatcher *metrics.Dispatcher // nil in a worker
	worker     *metrics.Worker     // nil in a dispatcher without slots
	nats       *metrics.NATS
	draining   atomic.Bool
	low        atomic.Pointer[error] // why the disk takes no new jobs; nil: it does
}

// newWatchers makes the series of a service: "dispatcher" or "worker".
func (a *app) newWatchers(component string, slots int) *watchers {
	opts := metrics.Options{Queues: a.cfg.Worker.Queues, Agents: workerparts.Agents(&a.cfg).Names()}
	w := &watchers{info: metrics.Info{Version: release(), Go: runtime.Version()}}
	w.registry = metrics.NewRegistry(w.info)
	w.nats = metrics.NewNATS(w.registry, component)
	if component == "dispatcher" {
		w.dispatcher = metrics.NewDispatcher(w.registry, opts)
	}
	if slots > 0 {
		w.worker = metrics.NewWorker(w.registry, opts)
		w.worker.Slots(slots)
	}
	return w
}

// hooks connect the services to the metrics.
func (w *watchers) hooks() pool.Hooks {
	var h pool.Hooks
	if d := w.dispatcher; d != nil {
		h.Dispatcher.Submitted = func(rec jobs.Record) { d.Submitted(rec.Queue, rec.Source) }
		h.Dispatcher.Deduplicated = func(_ jobs.Record, source string) { d.Deduplicated(source) }
		h.Dispatcher.Rejected = func(source string, _ error) { d.Rejected(source, "invalid") }
		h.Dispatcher.Leading = d.Leader
	}
	if w.worker != nil {
		w.worked(&h)
	}
	return h
}

func (w *watchers) worked(h *pool.Hooks) {
	m := w.worker
	h.Queue.Claimed = m.Claimed
	h.Worker.Claimed = func(jobs.Record) { m.Busy(1) }
	h.Worker.Released = func(jobs.Record) { m.Busy(-1) }
	h.Worker.Settled = func(rec jobs.Record, result jobs.Result) {
		m.Spent(rec.Agent, result.LastAttempt.Usage, result.LastAttempt.CostUSD) // the others were counted as they ended
		if rec.State == jobs.Finished {
			m.Ended(jobs.Ended{Outcome: rec.Outcome, Reason: rec.Reason})
			m.Finished(rec.Queue, result)
			return
		}
		m.Ended(rec.Reason.Ended(""))
		m.Requeued(rec.Reason)
	}
	h.Worker.Fenced = func(jobs.Record) { m.LeaseLost() }
	h.Worker.Present = m.Heartbeat
	h.Worker.Stage = m.Stage
	h.Worker.Jailed = m.SandboxStarted
	h.Worker.Violation = func(_ jobs.Record, v event.JailViolation) { m.Refused(v) }
	h.Worker.Network = func(_ jobs.Record, used event.JailNetwork) { m.Reached(used) }
	h.Worker.Dropped = m.EventDropped
	h.Worker.Events = func(kind jobs.Kind, bytes int, took time.Duration) { m.EventStored(kind, bytes, took) }
	h.Worker.Leftover = func(what string) {
		kind, _, _ := strings.Cut(what, " ")
		if kind == "jail" {
			kind = "process"
		}
		m.Removed(kind, 1)
	}
	h.Worker.Disk = func(d worker.Disk, low error) {
		m.Disk(d.Free.Bytes, d.Free.Inodes, low != nil)
		why := &low
		if low == nil {
			why = nil
		}
		w.low.Store(why)
	}
	h.Worker.Workspaces = m.Workspaces
	h.Worker.Exited = func(rec jobs.Record, class string, full bool) {
		m.AgentExited(rec.Agent, class)
		if full {
			m.OOMKilled(rec.Isolation)
		}
	}
	h.Worker.Hung = func(_ jobs.Record, what, step string) { m.Hung(what, step) }
	h.Worker.Turn = func(rec jobs.Record) { m.Turn(rec.Agent) }
	h.Worker.Limited = func(rec jobs.Record) { m.RateLimited(rec.Agent) }
}

// around runs services until one of them fails, or ctx ends and all have ended, and
// closes the pool. It serves health and metrics all the time, and stops them last:
// while the services drain, probes see that they are not ready.
func (w *watchers) around(ctx context.Context, p *pool.Pool, admin net.Listener, services ...func(context.Context) error) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, w.drain)
	shown := make(chan error, 1)
	g.Go(func() error { // until the services are to end: one that cannot be watched ends them
		go func() { shown <- w.serve(watching, p, admin) }()
		select {
		case err := <-shown:
			shown <- err
			return err
		case <-ctx.Done():
			return nil
		}
	})
	for _, service := range services {
		g.Go(func() error { return service(ctx) })
	}
	err := errors.Join(g.Wait(), p.Close())
	stop()
	return errors.Join(err, <-shown)
}

// serve shows the metrics and the health at an address until ctx ends, and
// measures the connection. An empty address shows nothing.
func (w *watchers) serve(ctx context.Context, p *pool.Pool, listener net.Listener) error {
	if w.dispatcher != nil {
		w.dispatcher.Queues(w.registry, func(ctx context.Context) ([]metrics.Stat, error) { return queueStats(ctx, p) }, 2*time.Second)
	}
	var g errgroup.Group
	g.Go(func() error { w.measure(ctx, p); return nil })
	if listener != nil {
		admin := metrics.Admin{Registry: w.registry, Info: w.info, Ready: []metrics.Check{
			{Name: "broker", Test: func(ctx context.Context) error { return p.Conn.FlushWithContext(ctx) }}, {Name: "draining", Test: w.accepting},
		}}
		if w.dispatcher == nil {
			admin.Ready = append(admin.Ready, metrics.Check{Name: "disk", Test: w.roomy})
		} else { // which takes jobs as long as its broker does, whatever its own disk
			admin.Ready = append(admin.Ready, metrics.Check{Name: "store", Test: p.Queue.Room})
		}
		g.Go(func() error {
			if err := adminServer(admin.Handler()).Serve(ctx, listener); err != nil {
				return fmt.Errorf("admin address: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// adminServer serves public information: numbers, and whether the service is healthy.
// It changes nothing.
func adminServer(h http.Handler) gate.Server {
	return gate.Server{Auth: gate.Public, Connections: 64, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that does not read could hold a connection for ever.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(30 * time.Second)) // every connection of ours has one
		h.ServeHTTP(w, r)
	})}
}

func (w *watchers) measure(ctx context.Context, p *pool.Pool) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	reconnects := uint64(0)
	for {
		w.nats.Connected(p.Conn.IsConnected())
		if n := p.Conn.Stats().Reconnects; n > reconnects {
			w.nats.Reconnected()
			reconnects = n
		}
		if rtt, err := p.Conn.RTT(); err == nil {
			w.nats.RoundTrip(rtt)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// drain says from now on that the worker takes nothing new.
func (w *watchers) drain() {
	w.draining.Store(true)
	if w.worker != nil {
		w.worker.Draining(true)
	}
}

func (w *watchers) accepting(context.Context) error {
	if w.draining.Load() {
		return errors.New("it shuts down and takes no new jobs")
	}
	return nil
}

func (w *watchers) roomy(context.Context) error {
	if low := w.low.Load(); low != nil {
		return *low
	}
	return nil
}

// queueStats gathers the rows of one queue, a row a state, into one.
func queueStats(ctx context.Context, p *pool.Pool) ([]metrics.Stat, error) {
	rows, err := p.Queue.Stats(ctx)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	var stats []metrics.Stat
	for _, row := range rows {
		i, ok := at[row.Queue]
		if !ok {
			i = len(stats)
			at[row.Queue] = i
			stats = append(stats, metrics.Stat{Queue: row.Queue})
		}
		s := &stats[i]
		s.Paused = s.Paused || row.Paused
		switch row.State {
		case jobs.Pending:
			s.Pending, s.OldestPending = row.Jobs, row.Oldest
		case jobs.Delayed:
			s.Delayed = row.Jobs
		case jobs.Executing:
			s.Executing = row.Jobs
		case jobs.Waiting:
			s.Waiting = row.Jobs
		}
	}
	return stats, nil
}

// listenAdmin opens the admin address. A default that another penstock has
// taken is replaced by a free port; one that was asked for is not.
func listenAdmin(address, standard string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) && address == standard {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, cli.Fail(cli.ExitUnexpected, `name another one with --admin, or none with --admin ""`, "admin address: %w", err)
	}
	return l, nil
}
