package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	sources  = setOf("cli", "nats", "http", "schedule", "batch")
	refusals = setOf("invalid", "quota")

	deliveryResults = whole("delivered", "retrying", "given_up")
)

// Dispatcher counts what one dispatcher does. Its methods may be called at
// any time by any goroutine, and never block.
type Dispatcher struct {
	queues *names

	submitted, deduplicated, rejected *prometheus.CounterVec
	leader                            prometheus.Gauge
	expired                           prometheus.Counter

	webhooks         *names
	deliveries       *prometheus.CounterVec
	undelivered      *prometheus.GaugeVec
	disabledWebhooks prometheus.Gauge
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
	d.expired = counter(reg, "jobs_expired_total", "Finished jobs that this dispatcher has removed, because a rule keeps them no longer or their purge was interrupted.").WithLabelValues()
	d.webhooks = newNames()
	d.deliveries = counter(reg, "webhook_deliveries_total", "Attempts to deliver events, where this dispatcher leads, by how they ended.", "webhook", "result")
	zero(d.deliveries.WithLabelValues, d.webhooks.all(), deliveryResults)
	d.undelivered = vector(reg, prometheus.NewGaugeVec, prometheus.GaugeOpts{
		Namespace: namespace, Name: "webhook_oldest_undelivered_timestamp_seconds", Help: "When the oldest event happened that waits for a webhook; 0 when none does.",
	}, "webhook")
	zero(d.undelivered.WithLabelValues, d.webhooks.all())
	d.disabledWebhooks = gauge(reg, "webhooks_disabled", "Webhooks that get nothing any more, where this dispatcher leads.")
	return d
}

// Expired counts finished jobs that were removed.
func (d *Dispatcher) Expired(jobs int) { d.expired.Add(float64(jobs)) }

// Delivered counts an attempt to deliver an event. The result is delivered, retrying or
// given_up.
func (d *Dispatcher) Delivered(webhook, result string) {
	d.deliveries.WithLabelValues(d.webhooks.of(webhook), deliveryResults.of(result)).Inc()
}

// Undelivered says when the oldest event happened that waits for a webhook; zero: none does.
func (d *Dispatcher) Undelivered(webhook string, oldest time.Time) {
	d.undelivered.WithLabelValues(d.webhooks.of(webhook)).Set(timestamp(oldest))
}

// DisabledWebhooks says how many webhooks get nothing any more.
func (d *Dispatcher) DisabledWebhooks(n int) { d.disabledWebhooks.Set(float64(n)) }

// Submitted counts an accepted job. The source is cli, nats, http, schedule or batch.
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
