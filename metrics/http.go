package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	resources = setOf("jobs", "batches", "queues", "holds", "caps", "budgets", "workers", "dead", "schedules", "webhooks", "stats", "autoscale", "version", "openapi.json", "schemas")
	classes   = whole("2xx", "4xx", "5xx")
)

// HTTP counts the requests that a process answers over HTTP.
type HTTP struct {
	requests *prometheus.CounterVec
	seconds  prometheus.Observer
}

// NewHTTP registers the series of an HTTP server.
func NewHTTP(reg prometheus.Registerer, opts Options) *HTTP {
	h := &HTTP{requests: counter(reg, "http_requests_total", "Requests over HTTP, by what they are about and the class of the answer's status.", "resource", "class")}
	zero(h.requests.WithLabelValues, resources, classes)
	h.seconds = scale{reg, opts.Histograms}.histogram("http_request_seconds", "Time until a request over HTTP was answered; streams of events are not in it.", answerBuckets).WithLabelValues()
	return h
}

// Answered counts a request. A route is a method and a path, as GET /v1/jobs/{id}.
func (h *HTTP) Answered(route string, status int, took time.Duration) {
	resource := Other
	if parts := strings.Split(route, "/"); len(parts) > 2 {
		resource = resources.of(parts[2])
	}
	class := strconv.Itoa(status/100) + "xx"
	if !classes.has(class) {
		class = "5xx" // none was sent: the client has seen a connection that ends
	}
	h.requests.WithLabelValues(resource, class).Inc()
	if !strings.HasSuffix(route, "/events") {
		h.seconds.Observe(took.Seconds())
	}
}
