package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var troubles = setOf("slow_consumer", "permission")

// NATS counts what happens on one component's connection to the broker.
type NATS struct {
	connected  prometheus.Gauge
	reconnects prometheus.Counter
	errors     *prometheus.CounterVec
	roundTrip  prometheus.Gauge
}

// NewNATS registers the series of a connection. The component is worker or
// dispatcher: a process may have both.
func NewNATS(reg prometheus.Registerer, component string) *NATS {
	own := prometheus.WrapRegistererWith(prometheus.Labels{"component": component}, reg)
	n := &NATS{connected: gauge(own, "nats_connected", "1 while the component is connected to the broker.")}
	n.reconnects = counter(own, "nats_reconnects_total", "Connections to the broker after the first.").WithLabelValues()
	n.errors = counter(own, "nats_errors_total", "Errors that the broker reported.", "kind")
	zero(n.errors.WithLabelValues, troubles)
	n.roundTrip = gauge(own, "nats_rtt_seconds", "Last round trip to the broker.")
	return n
}

// Connected says whether there is a connection.
func (n *NATS) Connected(on bool) { n.connected.Set(truth(on)) }

// Reconnected counts a connection after the first.
func (n *NATS) Reconnected() { n.reconnects.Inc() }

// Error counts an error: slow_consumer, permission, or another one.
func (n *NATS) Error(kind string) { n.errors.WithLabelValues(troubles.of(kind)).Inc() }

// RoundTrip notes how long the broker took to answer.
func (n *NATS) RoundTrip(took time.Duration) { n.roundTrip.Set(took.Seconds()) }
