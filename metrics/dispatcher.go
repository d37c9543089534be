package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	sources  = setOf("cli", "nats", "schedule", "batch")
	refusals = setOf("invalid")
)

// Dispatcher counts what one dispatcher does. Its methods may be called at
// any time by any goroutine, and never block.
type Dispatcher struct {
	queues *names

	submitted, deduplicated, rejected *prometheus.CounterVec
	leader                            prometheus.Gauge
}

// NewDispatcher registers a dispatcher's series.
func NewDispatcher(reg prometheus.Registerer, opts Options) *Dispatcher {
	d := &Dispatcher{queues: newNames(opts.Queues...)}
	d.submitted = counter(reg, "jobs_submitted_total", "Jobs that were accepted, through whatever door, as the dispatcher that leads has seen their records.", "queue", "source")
	zero(d.submitted.WithLabelValues, d.queues.all(), sources)
	d.deduplicated = counter(reg, "jobs_deduplicated_total", "Jobs that had been accepted before under the same key.", "source")
	zero(d.deduplicated.WithLabelValues, sources)
	d.rejected = counter(reg, "jobs_rejected_total", "Jobs that were refused.", "source", "reason")
	zero(d.rejected.WithLabelValues, sources, refusals)
	d.leader = gauge(reg, "leader", "1 on the dispatcher that schedules.")
	return d
}

// Submitted counts an accepted job. The source is cli, nats, schedule or batch.
func (d *Dispatcher) Submitted(queue, source string) {
	d.submitted.WithLabelValues(d.queues.of(queue), sources.of(source)).Inc()
}

// Deduplicated counts a job that had been accepted before.
func (d *Dispatcher) Deduplicated(source string) {
	d.deduplicated.WithLabelValues(sources.of(source)).Inc()
}

// Rejected counts a refused job. The reason is invalid.
func (d *Dispatcher) Rejected(source, reason string) {
	d.rejected.WithLabelValues(sources.of(source), refusals.of(reason)).Inc()
}

// Leader says whether this dispatcher schedules.
func (d *Dispatcher) Leader(on bool) { d.leader.Set(truth(on)) }

// Stat is what a queue holds now.
type Stat struct {
	Queue                                string
	Pending, Delayed, Executing, Waiting int
	OldestPending                        time.Time // zero: nothing is pending
	Paused                               bool
}

// QueueStats asks for the state of the queues at each scrape. It must return
// when its context ends.
type QueueStats func(context.Context) ([]Stat, error)

// Queues registers the series of the queues' state, which are read at each
// scrape, for at most timeout. When reading fails they are absent, and counted:
// a number from before would look as if nothing happened.
func (d *Dispatcher) Queues(reg prometheus.Registerer, read QueueStats, timeout time.Duration) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	c := &queueCollector{
		read: read, timeout: timeout, queues: d.queues,
		jobs:   desc("queue_jobs", "Jobs in a queue, by state.", "queue", "state"),
		oldest: desc("queue_oldest_pending_timestamp_seconds", "When the oldest pending job of a queue was submitted; 0 when none is pending.", "queue"),
		paused: desc("queue_paused", "1 while a queue is paused.", "queue"),
		took:   desc("collector_duration_seconds", "Time that the last reading of the queues' state took."),
		failed: desc("collector_errors_total", "Readings of the queues' state that failed."),
	}
	reg.MustRegister(c)
}

type queueCollector struct {
	read    QueueStats
	timeout time.Duration
	queues  *names

	jobs, oldest, paused, took, failed *prometheus.Desc

	mu     sync.Mutex
	errors float64
}

// Describe is of prometheus.Collector.
func (c *queueCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.jobs, c.oldest, c.paused, c.took, c.failed} {
		out <- d
	}
}

// Collect is of prometheus.Collector.
func (c *queueCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	begun := time.Now()
	stats, err := c.read(ctx)
	out <- prometheus.MustNewConstMetric(c.took, prometheus.GaugeValue, time.Since(begun).Seconds())
	out <- prometheus.MustNewConstMetric(c.failed, prometheus.CounterValue, c.count(err))
	if err != nil {
		return
	}
	for queue, s := range c.merged(stats) {
		for state, n := range map[string]int{"pending": s.Pending, "delayed": s.Delayed, "executing": s.Executing, "waiting": s.Waiting} {
			out <- prometheus.MustNewConstMetric(c.jobs, prometheus.GaugeValue, float64(n), queue, state)
		}
		at := 0.0
		if !s.OldestPending.IsZero() {
			at = float64(s.OldestPending.UnixMilli()) / 1e3
		}
		out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, at, queue)
		out <- prometheus.MustNewConstMetric(c.paused, prometheus.GaugeValue, truth(s.Paused), queue)
	}
}

func (c *queueCollector) count(err error) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errors++
	}
	return c.errors
}

// merged gives every queue its numbers, and adds up those of queues for which
// there is no label any more.
func (c *queueCollector) merged(stats []Stat) map[string]Stat {
	all := map[string]Stat{}
	for _, queue := range c.queues.all() {
		all[queue] = Stat{}
	}
	for _, s := range stats {
		queue := c.queues.of(s.Queue)
		sum := all[queue]
		sum.Pending += s.Pending
		sum.Delayed += s.Delayed
		sum.Executing += s.Executing
		sum.Waiting += s.Waiting
		if sum.OldestPending.IsZero() || !s.OldestPending.IsZero() && s.OldestPending.Before(sum.OldestPending) {
			sum.OldestPending = s.OldestPending
		}
		sum.Paused = sum.Paused || s.Paused
		all[queue] = sum
	}
	return all
}
