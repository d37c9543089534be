package metrics

import "github.com/prometheus/client_golang/prometheus"

var spanLosses = setOf("queue_full", "export_failed")

// Traces counts the spans that a process has made of jobs.
type Traces struct {
	exported prometheus.Counter
	dropped  *prometheus.CounterVec
}

// NewTraces registers the series of the export of traces.
func NewTraces(reg prometheus.Registerer) *Traces {
	t := &Traces{exported: counter(reg, "spans_exported_total", "Spans that the collector of traces has taken.").WithLabelValues()}
	t.dropped = counter(reg, "spans_dropped_total", "Spans that are lost, since the queue was full or the collector did not take them.", "reason")
	zero(t.dropped.WithLabelValues, spanLosses)
	return t
}

// Exported counts spans that the collector has taken.
func (t *Traces) Exported(n int) { t.exported.Add(float64(n)) }

// Dropped counts spans that are lost. The reason is queue_full or export_failed.
func (t *Traces) Dropped(n int, reason string) {
	t.dropped.WithLabelValues(spanLosses.of(reason)).Add(float64(n))
}
