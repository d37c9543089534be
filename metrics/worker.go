package metrics

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// Options name the values that labels may have, and the form of histograms.
type Options struct {
	// Queues are those that a worker serves. A dispatcher adds those that it
	// meets, up to a hundred.
	Queues     []string
	Agents     []string
	Keys       map[string]string // names of keys of model APIs, with the API of each
	Histograms Histograms
}

var (
	stages         = whole("provision", "agent", "check", "collect")
	directions     = whole("input", "output", "cache_read", "cache_write")
	exits          = setOf("ok", "error", "interrupted", "limit", "died", "no_turn")
	hangs          = whole("start", "idle", "stopped", "output", "retry", "exit")
	steps          = whole("interrupt", "input", "term", "kill")
	networkReasons = setOf("malformed", "not-listed", "address", "not-tls", "other-name", "budget")
	apis           = setOf("anthropic", "openai", "google")
	budgetSteps    = whole("warned", "exceeded")
	ways           = whole("sent", "received")
	leftovers      = setOf("workspace", "process", "mount", "cgroup", "container")
	losses         = setOf("too_large", "publish_error")
	groups         = setOf(groupsOf(event.Kinds())...)
)

func groupsOf(kinds []event.Row) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = group(k.Kind)
	}
	return names
}

// group is the first word of a kind: what an event is about.
func group(k jobs.Kind) string {
	name, _, _ := strings.Cut(string(k), ".")
	return name
}

// Worker counts what one worker does. Its methods may be called at any time
// by any goroutine, and never block.
type Worker struct {
	queues, agents set

	mu   sync.Mutex
	keys map[string]string // guarded by mu

	started, finished, unsuccessful, attempts, requeued     *prometheus.CounterVec
	sandboxStarts, oomKills, removed                        *prometheus.CounterVec
	exits, hangs, tokens, cost, turns, rateLimited, budgets *prometheus.CounterVec
	refused, traffic                                        *prometheus.CounterVec
	connections                                             prometheus.Counter
	events, dropped                                         *prometheus.CounterVec
	eventBytes, leasesLost                                  prometheus.Counter
	slots, inUse, draining, heartbeat                       prometheus.Gauge
	diskLow, diskBytes, diskInodes                          prometheus.Gauge
	spaceBytes, spaceInodes                                 prometheus.Gauge
	held, refusedKey, callsWaiting                          *prometheus.GaugeVec
	wait, stage, duration, sandboxStart                     *prometheus.HistogramVec
	publish                                                 prometheus.Observer
}

// NewWorker registers a worker's series.
func NewWorker(reg prometheus.Registerer, opts Options) *Worker {
	w := &Worker{queues: setOf(opts.Queues...), agents: setOf(opts.Agents...), keys: opts.Keys}
	w.jobSeries(reg, scale{reg, opts.Histograms})
	w.jailSeries(reg, scale{reg, opts.Histograms})
	w.networkSeries(reg)
	w.agentSeries(reg)
	w.eventSeries(reg, scale{reg, opts.Histograms})
	w.slots = gauge(reg, "worker_slots", "Jobs that the worker may run at the same time.")
	w.inUse = gauge(reg, "worker_slots_in_use", "Slots with a job in them.")
	w.draining = gauge(reg, "worker_draining", "1 while the worker finishes its jobs and takes no new ones.")
	w.diskLow = gauge(reg, "worker_disk_low", "1 while the worker claims nothing because the disk of its workspaces is low.")
	w.diskBytes = gauge(reg, "worker_disk_free_bytes", "Bytes free on the disk of the workspaces.")
	w.diskInodes = gauge(reg, "worker_disk_free_inodes", "Inodes free on the disk of the workspaces.")
	w.spaceBytes = gauge(reg, "worker_workspaces_bytes", "Bytes that the workspaces of running jobs take, beside what they share.")
	w.spaceInodes = gauge(reg, "worker_workspaces_inodes", "Inodes that the workspaces of running jobs take, beside what they share.")
	w.heartbeat = gauge(reg, "worker_heartbeat_timestamp_seconds", "When the worker last renewed its presence.")
	return w
}

func (w *Worker) jobSeries(reg prometheus.Registerer, s scale) {
	w.started = counter(reg, "jobs_started_total", "Attempts that began to execute.", "queue")
	zero(w.started.WithLabelValues, w.queues)
	w.finished = counter(reg, "jobs_finished_total", "Jobs that have finished, once each.", "queue", "outcome")
	zero(w.finished.WithLabelValues, w.queues, outcomes)
	w.unsuccessful = counter(reg, "jobs_unsuccessful_total", "Jobs that have finished without success, by reason.", "reason")
	zero(w.unsuccessful.WithLabelValues, reasons)
	w.attempts = counter(reg, "job_attempts_total", "Attempts that have ended.", "outcome")
	zero(w.attempts.WithLabelValues, outcomes)
	w.requeued = counter(reg, "job_retries_total", "Jobs that went back to their queue, by whose fault it was.", "fault")
	zero(w.requeued.WithLabelValues, faults)
	w.leasesLost = counter(reg, "job_leases_lost_total", "Attempts that lost their lease while they ran; their agents were ended and their results refused.").WithLabelValues()
	w.wait = s.histogram("job_queue_wait_seconds", "Time from when a job could start until it was claimed.", waitBuckets, "queue")
	zero(w.wait.WithLabelValues, w.queues)
	w.stage = s.histogram("job_stage_seconds", "Time that a stage of an attempt took.", jobBuckets, "stage")
	zero(w.stage.WithLabelValues, stages)
	w.duration = s.histogram("job_duration_seconds", "Time from submitting a job to its end.", jobBuckets, "queue")
	zero(w.duration.WithLabelValues, w.queues)
}

func (w *Worker) jailSeries(reg prometheus.Registerer, s scale) {
	w.sandboxStarts = counter(reg, "sandbox_starts_total", "Jails that were started, or could not be.", "isolation", "result")
	zero(w.sandboxStarts.WithLabelValues, isolations, set{"ok", "error"})
	w.sandboxStart = s.histogram("sandbox_start_seconds", "Time that starting a jail took.", startBuckets, "isolation")
	zero(w.sandboxStart.WithLabelValues, isolations)
	w.oomKills = counter(reg, "sandbox_oom_kills_total", "Jails that were ended because their memory was full.", "isolation")
	zero(w.oomKills.WithLabelValues, isolations)
	w.removed = counter(reg, "janitor_removed_total", "Leftovers of workers that died, found and removed.", "kind")
	zero(w.removed.WithLabelValues, leftovers)
}

func (w *Worker) networkSeries(reg prometheus.Registerer) {
	w.refused = counter(reg, "network_refused_total", "Hosts that jails did not reach, each counted once for an attempt and reason.", "reason")
	zero(w.refused.WithLabelValues, networkReasons)
	w.connections = counter(reg, "network_connections_total", "Connections of jails to allowed hosts.").WithLabelValues()
	w.traffic = counter(reg, "network_bytes_total", "Bytes between jails and allowed hosts.", "direction")
	zero(w.traffic.WithLabelValues, ways)
}

func (w *Worker) agentSeries(reg prometheus.Registerer) {
	w.exits = counter(reg, "agent_exits_total", "Ends of agents' processes.", "agent", "class")
	zero(w.exits.WithLabelValues, w.agents, exits)
	w.hangs = counter(reg, "agent_hangs_total", "Agents that hung, by what they did and the step that ended them.", "what", "step")
	zero(w.hangs.WithLabelValues, hangs, steps)
	w.tokens = counter(reg, "agent_tokens_total", "Tokens that agents used.", "agent", "direction")
	zero(w.tokens.WithLabelValues, w.agents, directions)
	w.cost = counter(reg, "agent_cost_usd_total", "What agents cost, in US dollars.", "agent")
	zero(w.cost.WithLabelValues, w.agents)
	w.turns = counter(reg, "agent_turns_total", "Turns of agents.", "agent")
	zero(w.turns.WithLabelValues, w.agents)
	w.rateLimited = counter(reg, "agent_rate_limited_total", "Times that the model's API refused an agent because of its rate.", "agent")
	zero(w.rateLimited.WithLabelValues, w.agents)
	w.callsWaiting = gauges(reg, "model_calls_waiting", "Calls of a model's API that wait for its limits.", "api", "key")
	zeroKeys(w.callsWaiting, w.keys)
	w.held = gauges(reg, "model_held_seconds", "How long a model's API takes no more calls of some model.", "api", "key")
	zeroKeys(w.held, w.keys)
	w.refusedKey = gauges(reg, "model_key_refused", "1 while a model's API refuses the key, or its account is empty.", "api", "key")
	zeroKeys(w.refusedKey, w.keys)
	w.budgets = counter(reg, "job_budgets_reached_total", "Jobs that have spent most of their budget, and all of it.", "what")
	zero(w.budgets.WithLabelValues, budgetSteps)
}

func (w *Worker) eventSeries(reg prometheus.Registerer, s scale) {
	w.events = counter(reg, "events_published_total", "Events that were stored, by what they are about.", "type")
	zero(w.events.WithLabelValues, groups)
	bytes := counter(reg, "event_bytes_total", "Size of the events that were stored.")
	w.eventBytes = bytes.WithLabelValues()
	w.dropped = counter(reg, "events_dropped_total", "Events that were not stored, because their attempt had written too much or the broker did not take them.", "reason")
	zero(w.dropped.WithLabelValues, losses)
	w.publish = s.histogram("event_publish_seconds", "Time until the broker had stored an event.", answerBuckets).WithLabelValues()
}

// Slots sets how many jobs may run at the same time.
func (w *Worker) Slots(n int) { w.slots.Set(float64(n)) }

// Busy adds to the slots that are in use.
func (w *Worker) Busy(delta int) { w.inUse.Add(float64(delta)) }

// Draining says whether the worker takes no new jobs.
func (w *Worker) Draining(on bool) { w.draining.Set(truth(on)) }

// Disk notes what is free on the disk of the workspaces, and whether that is
// too little to claim jobs.
func (w *Worker) Disk(bytes, inodes uint64, low bool) {
	w.diskBytes.Set(float64(bytes))
	w.diskInodes.Set(float64(inodes))
	w.diskLow.Set(truth(low))
}

// Workspaces notes what the workspaces of running jobs take together.
func (w *Worker) Workspaces(bytes, inodes int64) {
	w.spaceBytes.Set(float64(bytes))
	w.spaceInodes.Set(float64(inodes))
}

// Heartbeat notes that the worker has renewed its presence.
func (w *Worker) Heartbeat(at time.Time) { w.heartbeat.Set(timestamp(at)) }

// Claimed counts an attempt that begins. Wait is the time from when the job
// could start.
func (w *Worker) Claimed(r jobs.Record, wait time.Duration) {
	w.started.WithLabelValues(w.queues.of(r.Queue)).Inc()
	observe(w.wait.WithLabelValues(w.queues.of(r.Queue)), max(wait, 0).Seconds(), r)
}

// Ended counts an attempt that has ended, whether the job has or not.
func (w *Worker) Ended(end jobs.Ended) {
	w.attempts.WithLabelValues(outcomes.of(string(end.Outcome))).Inc()
}

// Requeued counts a job that will have another attempt.
func (w *Worker) Requeued(why jobs.Reason) {
	w.requeued.WithLabelValues(faults.of(string(jobs.Reasons[why].Fault))).Inc()
}

// Finished counts a job that has finished.
func (w *Worker) Finished(rec jobs.Record, r jobs.Result) {
	queue := w.queues.of(rec.Queue)
	w.finished.WithLabelValues(queue, outcomes.of(string(r.Outcome))).Inc()
	if r.Outcome != jobs.Success {
		w.unsuccessful.WithLabelValues(reasons.of(string(r.Reason))).Inc()
	}
	observe(w.duration.WithLabelValues(queue), r.Durations.Total, rec)
}

// observe adds a duration of a job to a histogram, with the job's trace as an example of
// how it came about, if it is recorded.
func observe(into prometheus.Observer, seconds float64, rec jobs.Record) {
	trace := rec.Span(0)
	with, ok := into.(prometheus.ExemplarObserver)
	if !ok || !trace.Sampled() {
		into.Observe(seconds)
		return
	}
	with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace.TraceID()})
}

// Stage notes how long a stage of an attempt took: provision, agent, check or
// collect. The jail has series of its own.
func (w *Worker) Stage(rec jobs.Record, name string, took time.Duration) {
	if stages.has(name) {
		observe(w.stage.WithLabelValues(name), took.Seconds(), rec)
	}
}

// LeaseLost counts an attempt that lost its lease.
func (w *Worker) LeaseLost() { w.leasesLost.Inc() }

// SandboxStarted counts a jail that was started, or was not.
func (w *Worker) SandboxStarted(isolation jobs.Isolation, took time.Duration, err error) {
	switch {
	case !isolations.has(string(isolation)):
	case err != nil:
		w.sandboxStarts.WithLabelValues(string(isolation), "error").Inc()
	default:
		w.sandboxStarts.WithLabelValues(string(isolation), "ok").Inc()
		w.sandboxStart.WithLabelValues(string(isolation)).Observe(took.Seconds())
	}
}

// Refused counts something that a jail wanted and did not get.
func (w *Worker) Refused(v event.JailViolation) {
	if v.Kind == "network" {
		w.refused.WithLabelValues(networkReasons.of(v.Reason)).Inc()
	}
}

// Reached counts what an attempt used of the network.
func (w *Worker) Reached(used event.JailNetwork) {
	for _, h := range used.Hosts {
		w.connections.Add(float64(max(h.Connections, 0)))
	}
	w.traffic.WithLabelValues("sent").Add(float64(max(used.Sent, 0)))
	w.traffic.WithLabelValues("received").Add(float64(max(used.Received, 0)))
}

// OOMKilled counts a jail whose memory was full.
func (w *Worker) OOMKilled(isolation jobs.Isolation) {
	if isolations.has(string(isolation)) {
		w.oomKills.WithLabelValues(string(isolation)).Inc()
	}
}

// Removed counts leftovers that were removed: workspace, process, mount,
// cgroup or container.
func (w *Worker) Removed(kind string, n int) {
	w.removed.WithLabelValues(leftovers.of(kind)).Add(float64(max(n, 0)))
}

// AgentExited counts the end of an agent's process, by the class that its
// event run.exited has.
func (w *Worker) AgentExited(agent, class string) {
	w.exits.WithLabelValues(w.agents.of(agent), exits.of(class)).Inc()
}

// Hung counts an agent that hung and was ended.
func (w *Worker) Hung(what, step string) {
	if hangs.has(what) && steps.has(step) {
		w.hangs.WithLabelValues(what, step).Inc()
	}
}

// Spent adds what an attempt used.
func (w *Worker) Spent(agent string, u jobs.Usage, usd float64) {
	agent = w.agents.of(agent)
	for direction, n := range map[string]int64{"input": u.Input, "output": u.Output, "cache_read": u.CacheRead, "cache_write": u.CacheWrite} {
		// Agents report these numbers; a counter must not go down.
		w.tokens.WithLabelValues(agent, direction).Add(float64(max(n, 0)))
	}
	if usd > 0 { // false for a NaN too
		w.cost.WithLabelValues(agent).Add(usd)
	}
}

// Turn counts a turn of an agent.
func (w *Worker) Turn(agent string) { w.turns.WithLabelValues(w.agents.of(agent)).Inc() }

// BudgetReached counts a job that has spent most of its budget, or all of it.
func (w *Worker) BudgetReached(spent bool) {
	what := "warned"
	if spent {
		what = "exceeded"
	}
	w.budgets.WithLabelValues(what).Inc()
}

// RateLimited counts a refusal of the model's API because of the rate.
func (w *Worker) RateLimited(agent string) { w.rateLimited.WithLabelValues(w.agents.of(agent)).Inc() }

// zeroKeys makes the series of each API's keys, and of the one that has no name.
func zeroKeys(of *prometheus.GaugeVec, keys map[string]string) {
	zero(of.WithLabelValues, apis, set{""})
	for key, api := range keys {
		of.WithLabelValues(apis.of(api), key)
	}
}

// A ModelLimit is how it is with a key of a model's API.
type ModelLimit struct {
	API, Key string        // the key has no name if it is that of the environment
	Waiting  int           // calls
	Held     time.Duration // how long it takes no calls of some model
	Refused  bool
}

// ModelLimits notes how it is with a key. One that the settings do not name was removed a moment ago.
func (w *Worker) ModelLimits(l ModelLimit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	api, key := apis.of(l.API), l.Key
	if key != "" && w.keys[key] != api {
		return
	}
	w.callsWaiting.WithLabelValues(api, key).Set(float64(l.Waiting))
	w.held.WithLabelValues(api, key).Set(max(l.Held, 0).Seconds())
	w.refusedKey.WithLabelValues(api, key).Set(truth(l.Refused))
}

// NameKeys takes the names of keys, with the API of each, instead of those that there were.
func (w *Worker) NameKeys(keys map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range []*prometheus.GaugeVec{w.callsWaiting, w.held, w.refusedKey} {
		for key, api := range w.keys {
			if keys[key] != api {
				of.DeleteLabelValues(apis.of(api), key)
			}
		}
		zeroKeys(of, keys)
	}
	w.keys = maps.Clone(keys)
}

// EventStored counts an event that the broker has stored.
func (w *Worker) EventStored(kind jobs.Kind, bytes int, took time.Duration) {
	w.events.WithLabelValues(groups.of(group(kind))).Inc()
	w.eventBytes.Add(float64(bytes))
	w.publish.Observe(took.Seconds())
}

// EventsDropped counts events that were not stored: too_large or publish_error.
func (w *Worker) EventsDropped(reason string, n int) {
	w.dropped.WithLabelValues(losses.of(reason)).Add(float64(max(n, 0)))
}

func truth(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
