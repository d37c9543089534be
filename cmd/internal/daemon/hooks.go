package daemon

import (
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/metrics"
	"github.com/penstock-run/penstock/traces"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/gate"
)

// Hooks connect the services to the metrics.
func (m *Monitor) Hooks() pool.Hooks {
	h := pool.Hooks{Traces: traces.Hooks{Exported: m.traces.Exported, Dropped: m.traces.Dropped}}
	if d := m.dispatcher; d != nil {
		h.Dispatcher.Submitted = func(rec jobs.Record) { d.Submitted(rec.Queue, rec.Source) }
		h.Dispatcher.Deduplicated = func(_ jobs.Record, source string) { d.Deduplicated(source) }
		h.Dispatcher.Rejected = func(source string, err error) {
			reason := "invalid"
			if jobs.Code(err) == jobs.CodeQuota {
				reason = "quota"
			}
			d.Rejected(source, reason)
		}
		h.Dispatcher.Leading = d.Leader
		h.Expired = d.Expired
		h.Webhooks = deliver.Hooks{Attempted: d.Delivered, Waiting: d.Undelivered, Disabled: d.DisabledWebhooks}
	}
	if m.worker != nil {
		m.watchWorker(&h)
	}
	return h
}

// HTTPHooks connect an HTTP server of a dispatcher to the metrics.
func (m *Monitor) HTTPHooks() httpapi.Hooks { return httpapi.Hooks{Answered: m.http.Answered} }

// watchWorker fills in the hooks of the worker.
func (m *Monitor) watchWorker(h *pool.Hooks) {
	series := m.worker
	h.Queue.Claimed = series.Claimed
	h.Worker.Claimed = func(jobs.Record) { series.Busy(1) }
	h.Worker.Released = func(jobs.Record) { series.Busy(-1) }
	h.Worker.Settled = func(rec jobs.Record, result jobs.Result) {
		series.Spent(rec.Agent, result.LastAttempt.Usage, result.LastAttempt.CostUSD) // the others were counted as they ended
		if rec.State == jobs.Finished {
			series.Ended(jobs.Ended{Outcome: rec.Outcome, Reason: rec.Reason})
			series.Finished(rec, result)
			return
		}
		series.Ended(rec.Reason.Ended(""))
		series.Requeued(rec.Reason)
	}
	h.Worker.Fenced = func(jobs.Record) { series.LeaseLost() }
	h.Worker.Present = series.Heartbeat
	h.Worker.Draining = func(drain *why.Drain) {
		series.Draining(drain != nil)
		m.drained.Store(drain)
	}
	h.Worker.Stage = series.Stage
	h.Worker.Jailed = series.SandboxStarted
	h.Worker.Violation = func(_ jobs.Record, v event.JailViolation) { series.Refused(v) }
	h.Worker.Network = func(_ jobs.Record, used event.JailNetwork) { series.Reached(used) }
	h.Worker.Dropped = series.EventsDropped
	h.Worker.Events = func(kind jobs.Kind, bytes int, took time.Duration) { series.EventStored(kind, bytes, took) }
	h.Worker.Leftover = func(what string) {
		kind, _, _ := strings.Cut(what, " ")
		if kind == "jail" {
			kind = "process"
		}
		series.Removed(kind, 1)
	}
	h.Worker.Disk = func(d worker.Disk, low error) {
		series.Disk(d.Free.Bytes, d.Free.Inodes, low != nil)
		why := &low
		if low == nil {
			why = nil
		}
		m.low.Store(why)
	}
	h.Worker.Workspaces = series.Workspaces
	h.Worker.Exited = func(rec jobs.Record, class string, full bool) {
		series.AgentExited(rec.Agent, class)
		if full {
			series.OOMKilled(rec.Isolation)
		}
	}
	h.Worker.Hung = func(_ jobs.Record, what, step string) { series.Hung(what, step) }
	h.Worker.Turn = func(rec jobs.Record) { series.Turn(rec.Agent) }
	h.Worker.Budget = func(_ jobs.Record, spent bool) { series.BudgetReached(spent) }
	h.Worker.Limits = func(api string, now gate.Standing) {
		series.ModelLimits(metrics.ModelLimit{API: api, Key: now.Key, Waiting: now.Waiting, Held: now.Held, Refused: now.Refused})
	}
	h.Worker.Limited = func(rec jobs.Record) { series.RateLimited(rec.Agent) }
}
