package metrics

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/penstock-run/penstock/jobs"
)

const namespace = "penstock"

// Other is the value of a label whose real value is not in the closed set.
const Other = "other"

// Buckets of the histograms, in seconds: jobs take minutes to hours, starts
// take milliseconds to minutes.
var (
	jobBuckets    = []float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400}
	waitBuckets   = []float64{1, 5, 15, 60, 120, 300, 900, 1800, 3600, 14400}
	startBuckets  = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}
	answerBuckets = []float64{.001, .0025, .005, .01, .025, .1, .5, 2.5, 10}
)

// Info says which program the metrics are of.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// NewRegistry returns a registry with what every process has: its build, the
// Go runtime and the process itself.
func NewRegistry(info Info) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := vector(reg, prometheus.NewGaugeVec, prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "Always 1; the labels say which build runs."}, "version", "revision", "goversion")
	build.WithLabelValues(info.Version, info.Revision, runtime.Version()).Set(1)
	return reg
}

// Histograms says in which form durations are kept.
type Histograms string

// Classic histograms have fixed buckets. Native ones need a scraper that asks
// for them, and answer any quantile.
const (
	Both    Histograms = "both"
	Classic Histograms = "classic"
	Native  Histograms = "native"
)

// set is a closed set of a label's values.
type set []string

func setOf[T ~string](values ...T) set {
	s := make(set, 0, len(values)+1)
	for _, v := range values {
		if !slices.Contains(s, string(v)) && v != Other && v != "" {
			s = append(s, string(v))
		}
	}
	return append(s, Other)
}

// whole is a set that has every possible value: any other is not
// counted. Histograms are expensive, and "other" would be one that stays empty.
func whole[T ~string](values ...T) set {
	s := setOf(values...)
	return s[:len(s)-1]
}

func (s set) has(value string) bool { return slices.Contains(s, value) }

func (s set) of(value string) string {
	if s.has(value) {
		return value
	}
	return Other
}

// moreNames is how many values a label may get that were never named before.
const moreNames = 100

// names are the values of a label that are met as time goes by. There are so many
// at most; what comes after them is Other.
type names struct {
	mu    sync.Mutex
	known set
	most  int
}

func newNames(known ...string) *names {
	s := setOf(known...)
	return &names{known: s, most: len(s) + moreNames}
}

func (n *names) of(value string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known.has(value) && len(n.known) < n.most && jobs.CheckToken("queue", value) == nil {
		n.known = append(n.known, value)
	}
	return n.known.of(value)
}

func (n *names) all() set {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.known)
}

var (
	outcomes   = setOf(jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip)
	reasons    = setOf(slices.Sorted(maps.Keys(jobs.Reasons))...)
	faults     = setOf(jobs.FaultJob, jobs.FaultAgent, jobs.FaultProvider, jobs.FaultPool)
	isolations = whole(jobs.IsolationNone, jobs.IsolationWorktree, jobs.IsolationContainer)
)

// vector makes a metric with labels, one of each combination of the sets, and
// registers it.
func vector[O any, V prometheus.Collector](reg prometheus.Registerer, make func(O, []string) V, opts O, labels ...string) V {
	v := make(opts, labels)
	reg.MustRegister(v)
	return v
}

func counter(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	return vector(reg, prometheus.NewCounterVec, prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels...)
}

func gauges(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return vector(reg, prometheus.NewGaugeVec, prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels...)
}

func gauge(reg prometheus.Registerer, name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	reg.MustRegister(g)
	return g
}

// scale makes histograms in the form that is asked for.
type scale struct {
	reg  prometheus.Registerer
	form Histograms
}

func (s scale) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help}
	if s.form != Native {
		opts.Buckets = buckets
	}
	if s.form != Classic {
		opts.NativeHistogramBucketFactor = 1.1
		opts.NativeHistogramMaxBucketNumber = 160
		opts.NativeHistogramMinResetDuration = time.Hour
	}
	return vector(s.reg, prometheus.NewHistogramVec, opts, labels...)
}

// zero makes the series of every combination of the labels' values.
func zero[T any](with func(...string) T, sets ...set) {
	values := make([]string, len(sets))
	var walk func(int)
	walk = func(i int) {
		if i == len(sets) {
			with(values...)
			return
		}
		for _, v := range sets[i] {
			values[i] = v
			walk(i + 1)
		}
	}
	walk(0)
}
