package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-run/penstock/jobs"
)

// State is what a pool holds now.
type State struct {
	Queues []Stat
	// Claiming and Closed count the workers that are alive: those that claim jobs, and
	// those that claim none now, because they shut down or their disk is low.
	Claiming, Closed int
	DeadLetters      int
	// StoreBytes is what the broker's store holds, of StoreLimit; zero is no limit.
	StoreBytes, StoreLimit int64
	// BackupVerified is when a backup was last verified, and BackupFailed when one last failed; zero: never.
	BackupVerified, BackupFailed time.Time
	Budgets                      []Spending
	Quotas                       []Quota
}

// Quota is how much of a quota is used.
type Quota struct {
	Key        string // as it was configured
	Bytes      bool   // it bounds stored bytes, and not open jobs
	Used, Most int64  // of a key with a *, by the value that has most
}

// Spending is what jobs have spent of a budget that they share, in its present period.
type Spending struct {
	Budget       string // its key and period, as in queue:slow/day
	Unit         string // usd or tokens
	Spent, Limit float64
}

// Stat is what a queue holds now.
type Stat struct {
	Queue                                string
	Pending, Delayed, Executing, Waiting int
	QuotaWaiting, KeyRefused             int       // of the delayed ones
	BudgetWaiting, BudgetParked          int       // the same
	OldestPending                        time.Time // zero: nothing is pending
	Paused                               bool
	Slots                                int // of the workers that claim its jobs
}

// ReadState asks for the state of the pool at each scrape. It must return when
// its context ends.
type ReadState func(context.Context) (State, error)

// State registers the series of the pool's state, which is read at each scrape,
// for at most timeout. When reading fails they are absent, and counted: a number
// from before would look as if nothing happened.
func (d *Dispatcher) State(reg prometheus.Registerer, read ReadState, timeout time.Duration) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	c := &stateCollector{
		read: read, timeout: timeout, queues: d.queues,
		jobs:     desc("queue_jobs", "Jobs in a queue, by state.", "queue", "state"),
		held:     desc("jobs_held", "Delayed jobs that wait for a model API or a budget, by reason.", "reason"),
		oldest:   desc("queue_oldest_pending_timestamp_seconds", "When the oldest pending job of a queue was submitted; 0 when none is pending.", "queue"),
		paused:   desc("queue_paused", "1 while a queue is paused.", "queue"),
		slots:    desc("queue_slots", "Slots of the workers that claim jobs of a queue; a worker that serves several queues counts in each.", "queue"),
		workers:  desc("workers", "Workers that are alive, by whether they claim jobs; a closed one shuts down, or its disk is low.", "state"),
		dead:     desc("dead_letters", "Jobs, submissions and messages that failed for good, until they are retried, dropped or too old."),
		bytes:    desc("store_bytes", "Bytes that the broker's store holds."),
		limit:    desc("store_limit_bytes", "Bytes that the broker's store may hold; 0 when the account has no limit."),
		verified: desc("backup_verified_timestamp_seconds", "When a backup was last verified by restoring it; 0 when none was, as far as the audit log goes back."),
		broken:   desc("backup_failed_timestamp_seconds", "When a backup last failed; 0 when none did, as far as the audit log goes back."),
		spent:    desc("budget_spent", "What was spent of a budget that jobs share, in its present period.", "budget", "unit"),
		most:     desc("budget_limit", "What may be spent of a budget that jobs share, in each period.", "budget", "unit"),
		open:     desc("quota_open_jobs", "Open jobs of a quota; of one with a *, those of the value that has most of them.", "quota"),
		bound:    desc("quota_limit_jobs", "Jobs that may be open of a quota.", "quota"),
		stored:   desc("quota_stored_bytes", "Bytes that are stored of the jobs of a quota; of one with a *, of those of the value that has most of them.", "quota"),
		mayStore: desc("quota_limit_bytes", "Bytes that may be stored of the jobs of a quota.", "quota"),
		took:     desc("collector_duration_seconds", "Time that the last reading of the pool's state took."),
		failed:   desc("collector_errors_total", "Readings of the pool's state that failed."),
	}
	reg.MustRegister(c)
}

type stateCollector struct {
	read    ReadState
	timeout time.Duration
	queues  *names

	jobs, held                  *prometheus.Desc
	oldest, paused, slots       *prometheus.Desc
	workers, dead, bytes, limit *prometheus.Desc
	verified, broken            *prometheus.Desc
	spent, most, open, bound    *prometheus.Desc
	stored, mayStore            *prometheus.Desc
	took, failed                *prometheus.Desc

	mu     sync.Mutex
	errors float64
}

// Describe is of prometheus.Collector.
func (c *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.jobs, c.held, c.oldest, c.paused, c.slots, c.workers, c.dead, c.bytes, c.limit, c.verified, c.broken, c.spent, c.most, c.open, c.bound, c.stored, c.mayStore, c.took, c.failed} {
		out <- d
	}
}

// Collect is of prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	begun := time.Now()
	state, err := c.read(ctx)
	out <- prometheus.MustNewConstMetric(c.took, prometheus.GaugeValue, time.Since(begun).Seconds())
	out <- prometheus.MustNewConstMetric(c.failed, prometheus.CounterValue, c.count(err))
	if err != nil {
		return
	}
	show := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for queue, s := range c.merged(state.Queues) {
		for name, n := range map[string]int{"pending": s.Pending, "delayed": s.Delayed, "executing": s.Executing, "waiting": s.Waiting} {
			show(c.jobs, float64(n), queue, name)
		}
		show(c.oldest, timestamp(s.OldestPending), queue)
		show(c.paused, truth(s.Paused), queue)
		show(c.slots, float64(s.Slots), queue)
	}
	held := map[jobs.Reason]int{}
	for _, s := range state.Queues {
		held[jobs.QuotaWaiting] += s.QuotaWaiting
		held[jobs.KeyRefused] += s.KeyRefused
		held[jobs.BudgetWaiting] += s.BudgetWaiting
		held[jobs.BudgetParked] += s.BudgetParked
	}
	for _, reason := range []jobs.Reason{jobs.QuotaWaiting, jobs.KeyRefused, jobs.BudgetWaiting, jobs.BudgetParked} {
		show(c.held, float64(held[reason]), string(reason))
	}
	show(c.workers, float64(state.Claiming), "claiming")
	show(c.workers, float64(state.Closed), "closed")
	show(c.dead, float64(state.DeadLetters))
	show(c.bytes, float64(state.StoreBytes))
	show(c.limit, float64(max(state.StoreLimit, 0)))
	show(c.verified, timestamp(state.BackupVerified))
	show(c.broken, timestamp(state.BackupFailed))
	for _, b := range state.Budgets {
		show(c.spent, b.Spent, b.Budget, b.Unit)
		show(c.most, b.Limit, b.Budget, b.Unit)
	}
	for _, q := range state.Quotas {
		used, most := c.open, c.bound
		if q.Bytes {
			used, most = c.stored, c.mayStore
		}
		show(used, float64(q.Used), q.Key)
		show(most, float64(q.Most), q.Key)
	}
}

// timestamp is a time in seconds, and 0 for none.
func timestamp(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1e3
}

func (c *stateCollector) count(err error) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errors++
	}
	return c.errors
}

// merged gives every queue its numbers, and adds up those of queues for which
// there is no label any more.
func (c *stateCollector) merged(stats []Stat) map[string]Stat {
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
		sum.Slots += s.Slots
		if sum.OldestPending.IsZero() || !s.OldestPending.IsZero() && s.OldestPending.Before(sum.OldestPending) {
			sum.OldestPending = s.OldestPending
		}
		sum.Paused = sum.Paused || s.Paused
		all[queue] = sum
	}
	return all
}
