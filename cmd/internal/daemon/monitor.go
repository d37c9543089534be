// Package daemon has what the services share that a user starts with serve and worker:
// metrics and health on the admin address, messages to the service manager, and settings
// that are read again on SIGHUP.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/metrics"
	"github.com/penstock-run/penstock/worker/modelkey"
)

const (
	pulse    = 10 * time.Second // how often a service measures its way to the broker
	restLook = 15 * time.Second // how often it looks whether it rests
)

// A Monitor counts what a service does, and shows it on its admin address.
type Monitor struct {
	shell      cli.Shell
	info       metrics.Info
	registry   *prometheus.Registry
	dispatcher *metrics.Dispatcher // nil in a worker
	http       *metrics.HTTP       // nil in a worker
	worker     *metrics.Worker     // nil in a dispatcher without slots
	nats       *metrics.NATS
	traces     *metrics.Traces
	draining   atomic.Bool
	drained    atomic.Pointer[why.Drain] // the worker was told to claim nothing more
	low        atomic.Pointer[error]     // why the disk takes no new jobs; nil: it does
	manager    serviceManager
	profiles   bool          // are shown on the admin address
	stopWithin time.Duration // how long the service may take to stop
}

// What a service is called in its metrics.
const (
	Dispatcher = "dispatcher"
	Worker     = "worker"
)

// stopMargin is what a service needs to stop, besides the time for its running jobs: to hand
// jobs back, to store what they left, and to close the broker.
const stopMargin = time.Minute

// NewMonitor makes the series of a service: [Dispatcher] or [Worker].
func NewMonitor(shell cli.Shell, component string, slots int) *Monitor {
	opts := metrics.Options{Queues: shell.Config.Worker.Queues, Agents: workerparts.Agents(shell.Config).Names(), Keys: keyNames(shell.Config)}
	m := &Monitor{shell: shell, info: metrics.Info{Version: shell.Release, Go: runtime.Version()}, manager: takeServiceManager(), stopWithin: stopMargin}
	m.registry = metrics.NewRegistry(m.info)
	m.nats = metrics.NewNATS(m.registry, component)
	m.traces = metrics.NewTraces(m.registry)
	if component == Dispatcher {
		m.dispatcher = metrics.NewDispatcher(m.registry, opts)
		m.http = metrics.NewHTTP(m.registry, opts)
	}
	if slots > 0 {
		m.worker = metrics.NewWorker(m.registry, opts)
		m.worker.Slots(slots)
		m.stopWithin += shell.Config.Worker.Drain
	}
	return m
}

// keyNames are those of the keys of model APIs, with the API of each.
func keyNames(c *cli.Config) map[string]string {
	names := map[string]string{}
	for name, key := range c.Model.Keys {
		names[name] = key.API
	}
	return names
}

// PrepareKeys has the worker's metrics name other keys, too, when the worker uses them.
func (m *Monitor) PrepareKeys(prepare PrepareKeys) PrepareKeys {
	return func(again cli.Config) (func() modelkey.Change, error) {
		use, err := prepare(again)
		if err != nil {
			return nil, err
		}
		return func() modelkey.Change {
			m.worker.NameKeys(keyNames(&again))
			return use()
		}, nil
	}
}

// Run runs services until one of them fails, or ctx ends and all have ended, and
// closes the pool. It serves health and metrics all the time, and stops them last:
// while the services drain, probes see that they are not ready. The service manager is told
// the same.
func (m *Monitor) Run(ctx context.Context, p *pool.Pool, admin net.Listener, services ...func(context.Context) error) error {
	m.hear(p.Conn)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, func() { m.drain(m.log(p)) })
	g.Go(func() error {
		giveBack(ctx, restLook)
		return nil
	})
	shown := make(chan error, 1)
	g.Go(func() error { // until the services are to end: one that cannot be watched ends them
		go func() { shown <- m.serve(watching, p, admin) }()
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
	if err := m.manager.tell("READY=1"); err != nil {
		m.log(p).Error("the service manager does not know that the service is ready", "err", err)
	}
	err := errors.Join(g.Wait(), p.Close())
	stop()
	return errors.Join(err, <-shown)
}

// log is where the service itself writes what no part of it does.
func (*Monitor) log(p *pool.Pool) *slog.Logger {
	return p.Logger.With(servicelog.Component(servicelog.InService))
}

// hear counts the errors that the connection reports, and hands them on.
func (m *Monitor) hear(conn *nats.Conn) {
	before := conn.ErrorHandler()
	conn.SetErrorHandler(func(conn *nats.Conn, sub *nats.Subscription, err error) {
		switch {
		case errors.Is(err, nats.ErrSlowConsumer):
			m.nats.Error("slow_consumer")
		case errors.Is(err, nats.ErrPermissionViolation):
			m.nats.Error("permission")
		default:
			m.nats.Error(metrics.Other)
		}
		if before != nil {
			before(conn, sub, err)
		}
	})
}

func (m *Monitor) measure(ctx context.Context, p *pool.Pool) {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	reconnects := uint64(0)
	for {
		m.nats.Connected(p.Conn.IsConnected())
		if n := p.Conn.Stats().Reconnects; n > reconnects {
			m.nats.Reconnected()
			reconnects = n
		}
		if rtt, err := p.Conn.RTT(); err == nil {
			m.nats.RoundTrip(rtt)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// drain says from now on that the service takes nothing new.
func (m *Monitor) drain(log *slog.Logger) {
	m.draining.Store(true)
	if err := m.manager.stopping(m.stopWithin); err != nil {
		log.Warn("the service manager does not know that the service stops", "err", err)
	}
}

func (m *Monitor) accepting(context.Context) error {
	if m.draining.Load() {
		return errors.New("it shuts down and takes no new jobs")
	}
	// A dispatcher takes jobs also while its own worker drains.
	if d := m.drained.Load(); d != nil && m.dispatcher == nil {
		return errors.New(d.String())
	}
	return nil
}

func (m *Monitor) roomy(context.Context) error {
	if low := m.low.Load(); low != nil {
		return *low
	}
	return nil
}
