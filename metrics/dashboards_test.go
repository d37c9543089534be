package metrics

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/goldentest"
)

// A panelRow is a headline of a dashboard and the panels below it.
type panelRow struct {
	title  string
	panels []panelOf
}

// A panelOf is what one panel shows, in its unit. A query names series as they are: job and
// instance are added to each, as all dashboards of Prometheus have them.
type panelOf struct {
	title, description, unit string
	queries                  []query
}

type query struct{ legend, expr string }

func one(legend, expr string) []query { return []query{{legend, expr}} }

// quantiles are the median and the slow end of a histogram.
func quantiles(by, histogram string) []query {
	label := ""
	if by != "" {
		label = "{{" + by + "}} "
		by = ", " + by
	}
	sum := "sum by (le" + by + ") (rate(" + histogram + "[$__rate_interval])))"
	return []query{{label + "median", "histogram_quantile(0.5, " + sum}, {label + "95 %", "histogram_quantile(0.95, " + sum}}
}

// poolRows are about the pool as its dispatchers see it, and its jobs. Every dispatcher tells
// the same of the pool, so that the maximum is taken.
func poolRows() []panelRow {
	return []panelRow{
		{"Now", []panelOf{
			{"Pending jobs", "Jobs that a worker could claim.", "short", one("", `sum(max by (job, queue) (penstock_queue_jobs{queue=~"$queue", state="pending"}))`)},
			{"Running jobs", "Jobs that a worker holds.", "short", one("", `sum(max by (job, queue) (penstock_queue_jobs{queue=~"$queue", state="executing"}))`)},
			{"Oldest pending job", "How long the oldest pending job has waited; 0 when none does.", "s", one("", `max(`+age(`penstock_queue_oldest_pending_timestamp_seconds{queue=~"$queue"}`)+`)`)},
			{"Workers that claim", "Workers that are alive and claim jobs.", "short", one("", `sum(max by (job) (penstock_workers{state="claiming"}))`)},
			{"Slots in use", "The share of all workers' slots with a job in them.", "percentunit", one("", `sum(penstock_worker_slots_in_use) / sum(penstock_worker_slots)`)},
			{"Dead letters", "Jobs, submissions and messages that wait for a person.", "short", one("", `sum(max by (job) (penstock_dead_letters))`)},
			{"Cost", "What agents have cost in the time shown, as they report it.", "currencyUSD", one("", `sum(increase(penstock_agent_cost_usd_total[$__range]))`)},
			{"Leaders", "Dispatchers that lead: one for each pool.", "short", one("", `sum(penstock_leader)`)},
		}},
		{"Queues", []panelOf{
			{"Jobs by state", "Jobs of all chosen queues.", "short", one("{{state}}", `sum by (state) (max by (job, queue, state) (penstock_queue_jobs{queue=~"$queue"}))`)},
			{"Held by model APIs and budgets", "Delayed jobs that wait for the limits of a model API, until it accepts the key, or for a budget.", "short", one("{{reason}}", `max by (reason) (penstock_jobs_held)`)},
			{"Shared budgets", "How much was spent of each budget that jobs share, in its present period.", "percentunit", one("{{budget}} in {{unit}}", `max by (job, budget, unit) (penstock_budget_spent) / max by (job, budget, unit) (penstock_budget_limit)`)},
			{"Quotas", "How many of the jobs that a quota allows are open, and how much is stored of what it allows; of one with a *, by the value that has most.", "percentunit", []query{
				{"{{quota}}", `max by (job, quota) (penstock_quota_open_jobs) / max by (job, quota) (penstock_quota_limit_jobs)`},
				{"{{quota}} stored", `max by (job, quota) (penstock_quota_stored_bytes) / max by (job, quota) (penstock_quota_limit_bytes)`},
			}},
			{"Pending jobs by queue", "Jobs that a worker could claim.", "short", one("{{queue}}", `sum by (queue) (max by (job, queue) (penstock_queue_jobs{queue=~"$queue", state="pending"}))`)},
			{"Oldest pending job by queue", "How long the oldest pending job has waited.", "s", one("{{queue}}", `max by (queue) (`+age(`penstock_queue_oldest_pending_timestamp_seconds{queue=~"$queue"}`)+`)`)},
			{"Slots by queue", "Slots of the workers that claim jobs of a queue.", "short", one("{{queue}}", `sum by (queue) (max by (job, queue) (penstock_queue_slots{queue=~"$queue"}))`)},
			{"Wait for a worker", "Time from when a job could start until it was claimed.", "s", quantiles("", `penstock_job_queue_wait_seconds_bucket{queue=~"$queue"}`)},
			{"Paused queues", "1 while a queue is paused.", "bool", one("{{queue}}", `max by (queue) (penstock_queue_paused{queue=~"$queue"})`)},
		}},
		{"Jobs", []panelOf{
			{"Submitted", "Jobs that were accepted, by the door that they came through.", "ops", one("{{source}}", `sum by (source) (rate(penstock_jobs_submitted_total{queue=~"$queue"}[$__rate_interval]))`)},
			{"Finished", "Jobs that have finished, by outcome.", "ops", one("{{outcome}}", `sum by (outcome) (rate(penstock_jobs_finished_total{queue=~"$queue"}[$__rate_interval]))`)},
			{"Duration", "Time from submitting a job to its end.", "s", quantiles("", `penstock_job_duration_seconds_bucket{queue=~"$queue"}`)},
			{"Why jobs do not succeed", "The ten most frequent reasons in the time shown.", "short", one("{{reason}}", `topk(10, sum by (reason) (increase(penstock_jobs_unsuccessful_total[$__range])))`)},
			{"Retries", "Jobs that went back to their queue, by whose fault it was.", "ops", one("{{fault}}", `sum by (fault) (rate(penstock_job_retries_total[$__rate_interval]))`)},
			{"Refused and repeated", "Jobs that were refused, and those that had been accepted before.", "ops", []query{
				{"refused", `sum(rate(penstock_jobs_rejected_total[$__rate_interval]))`}, {"repeated", `sum(rate(penstock_jobs_deduplicated_total[$__rate_interval]))`},
			}},
		}},
		{"Broker and services", []panelOf{
			{"Removed jobs", "Finished jobs that a rule of retention has removed.", "ops", one("", `sum(rate(penstock_jobs_expired_total[$__rate_interval]))`)},
			{"Broker's store", "What the broker keeps for the pool, and how much it may be; a limit of 0 is none.", "bytes", []query{{"stored", `max by (job) (penstock_store_bytes)`}, {"limit", `max by (job) (penstock_store_limit_bytes)`}}},
			{"Last verified backup", "How old it is, and how long ago one has failed; 0 when none did.", "s", []query{{"verified", `max(` + age(`penstock_backup_verified_timestamp_seconds`) + `)`}, {"failed", `max(` + age(`penstock_backup_failed_timestamp_seconds`) + `)`}}},
			{"Round trip to the broker", "Last round trip of each process.", "s", one("{{instance}}", `max by (instance) (penstock_nats_rtt_seconds)`)},
			{"Trouble with the broker", "New connections, errors that the broker reported, and leases that were lost.", "ops", []query{
				{"reconnected", `sum(rate(penstock_nats_reconnects_total[$__rate_interval]))`}, {"{{kind}}", `sum by (kind) (rate(penstock_nats_errors_total[$__rate_interval]))`},
				{"leases lost", `sum(rate(penstock_job_leases_lost_total[$__rate_interval]))`},
			}},
			{"Requests over HTTP", "By the class of the answer's status.", "reqps", one("{{class}}", `sum by (class) (rate(penstock_http_requests_total[$__rate_interval]))`)},
			{"Time of answers over HTTP", "Streams of events are not in it.", "s", quantiles("", `penstock_http_request_seconds_bucket`)},
			{"Deliveries to webhooks", "Attempts to deliver events, by how they ended.", "ops", one("{{result}}", `sum by (result) (rate(penstock_webhook_deliveries_total[$__rate_interval]))`)},
			{"Webhooks that are behind", "How long the oldest event has waited for its receiver.", "s", one("{{webhook}}", `max by (webhook) (`+age(`penstock_webhook_oldest_undelivered_timestamp_seconds`)+`)`)},
			{"Reading the pool's state", "Time that the last reading took; beyond two seconds it fails.", "s", one("{{instance}}", `max by (instance) (penstock_collector_duration_seconds)`)},
		}},
	}
}

// workerRows are about the workers, and the agents that they run.
func workerRows() []panelRow {
	return []panelRow{
		{"Workers", []panelOf{
			{"Slots in use", "Slots with a job in them, and all of them.", "short", []query{{"{{instance}} in use", `sum by (instance) (penstock_worker_slots_in_use)`}, {"{{instance}} slots", `sum by (instance) (penstock_worker_slots)`}}},
			{"Started", "Attempts that began to execute.", "ops", one("{{instance}}", `sum by (instance) (rate(penstock_jobs_started_total[$__rate_interval]))`)},
			{"Attempts", "Attempts that have ended, by outcome.", "ops", one("{{outcome}}", `sum by (outcome) (rate(penstock_job_attempts_total[$__rate_interval]))`)},
			{"Claiming nothing", "1 while a worker finishes its jobs and takes no new ones, or its disk is low.", "bool", []query{{"{{instance}} drains", `max by (instance) (penstock_worker_draining)`}, {"{{instance}} disk is low", `max by (instance) (penstock_worker_disk_low)`}}},
			{"Silence", "Time since a worker last told the pool that it is alive.", "s", one("{{instance}}", `max by (instance) (`+age(`penstock_worker_heartbeat_timestamp_seconds`)+`)`)},
			{"Versions", "Processes of each version.", "short", one("{{version}}", `count by (version) (penstock_build_info)`)},
		}},
		{"Hosts", []panelOf{
			{"Disk of the workspaces", "What is free, and what the workspaces of running jobs take.", "bytes", []query{{"{{instance}} free", `min by (instance) (penstock_worker_disk_free_bytes)`}, {"{{instance}} workspaces", `max by (instance) (penstock_worker_workspaces_bytes)`}}},
			{"Inodes of the workspaces", "What is free, and what the workspaces of running jobs take.", "short", []query{{"{{instance}} free", `min by (instance) (penstock_worker_disk_free_inodes)`}, {"{{instance}} workspaces", `max by (instance) (penstock_worker_workspaces_inodes)`}}},
			{"Processor time", "Of the process itself, without its jails.", "percentunit", one("{{instance}}", `sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))`)},
			{"Memory", "Of the process itself, without its jails.", "bytes", one("{{instance}}", `sum by (instance) (process_resident_memory_bytes)`)},
		}},
		{"Stages and jails", []panelOf{
			{"Time of stages", "Time that a stage of an attempt took.", "s", quantiles("stage", `penstock_job_stage_seconds_bucket`)},
			{"Start of jails", "Time that starting a jail took.", "s", quantiles("isolation", `penstock_sandbox_start_seconds_bucket`)},
			{"Jails", "Jails that were started, or could not be.", "ops", one("{{isolation}} {{result}}", `sum by (isolation, result) (rate(penstock_sandbox_starts_total[$__rate_interval]))`)},
			{"Jails out of memory", "Jails that were ended because their memory was full, in the time shown.", "short", one("{{isolation}}", `sum by (isolation) (increase(penstock_sandbox_oom_kills_total[$__range]))`)},
			{"Leftovers", "Leftovers of workers that died, found and removed in the time shown.", "short", one("{{kind}}", `sum by (kind) (increase(penstock_janitor_removed_total[$__range]))`)},
		}},
		{"Agents", []panelOf{
			{"Cost of an hour", "What agents cost.", "currencyUSD", one("{{agent}}", `3600 * sum by (agent) (rate(penstock_agent_cost_usd_total{agent=~"$agent"}[$__rate_interval]))`)},
			{"Tokens", "Tokens that agents used in a second.", "cps", one("{{direction}}", `sum by (direction) (rate(penstock_agent_tokens_total{agent=~"$agent"}[$__rate_interval]))`)},
			{"Turns", "Turns of agents.", "ops", one("{{agent}}", `sum by (agent) (rate(penstock_agent_turns_total{agent=~"$agent"}[$__rate_interval]))`)},
			{"Ends of agents", "How agents' processes ended.", "ops", one("{{class}}", `sum by (class) (rate(penstock_agent_exits_total{agent=~"$agent"}[$__rate_interval]))`)},
			{"Hung agents", "Agents that hung, by what they did, in the time shown.", "short", one("{{what}}", `sum by (what) (increase(penstock_agent_hangs_total[$__range]))`)},
			{"Budgets", "Jobs that have spent most of their budget, and all of it, in the time shown.", "short", one("{{what}}", `sum by (what) (increase(penstock_job_budgets_reached_total[$__range]))`)},
			{"Limits of model APIs", "Calls that wait, seconds for which an API takes none of some model, and keys that it refuses.", "short", []query{{"{{api}} waiting", `sum by (api) (penstock_model_calls_waiting)`}, {"{{api}} held", `max by (api) (penstock_model_held_seconds)`}, {"{{api}} key refused", `max by (api) (penstock_model_key_refused)`}}},
			{"Refused by the model", "Times that the model's API refused an agent because of its rate.", "ops", one("{{agent}}", `sum by (agent) (rate(penstock_agent_rate_limited_total{agent=~"$agent"}[$__rate_interval]))`)},
		}},
		{"Network and events", []panelOf{
			{"Connections of jails", "To allowed hosts.", "ops", one("connections", `sum(rate(penstock_network_connections_total[$__rate_interval]))`)},
			{"Traffic of jails", "Between jails and allowed hosts.", "Bps", one("{{direction}}", `sum by (direction) (rate(penstock_network_bytes_total[$__rate_interval]))`)},
			{"Refused hosts", "Hosts that jails did not reach, by why.", "ops", one("{{reason}}", `sum by (reason) (rate(penstock_network_refused_total[$__rate_interval]))`)},
			{"Events", "The ten most frequent events of sessions.", "ops", one("{{type}}", `topk(10, sum by (type) (rate(penstock_events_published_total[$__rate_interval])))`)},
			{"Storing an event", "Time until the broker had stored an event.", "s", quantiles("", `penstock_event_publish_seconds_bucket`)},
			{"Lost and cut events", "Events that were cut or lost in the time shown.", "short", one("{{reason}}", `sum by (reason) (increase(penstock_events_dropped_total[$__range]))`)},
			{"Size of events", "Of the events that were stored.", "Bps", one("stored", `sum(rate(penstock_event_bytes_total[$__rate_interval]))`)},
			{"Spans of traces", "Spans that the collector has taken in the time shown, and those that are lost.", "short", append(one("exported", `sum(increase(penstock_spans_exported_total[$__range]))`), one("{{reason}}", `sum by (reason) (increase(penstock_spans_dropped_total[$__range]))`)...)},
		}},
	}
}

// age is how long ago a time was; 0 when there is none.
func age(series string) string { return "(time() - " + series + ") * (" + series + " > bool 0)" }

// TestDashboards holds the dashboards against what is written here: -update makes them.
func TestDashboards(t *testing.T) {
	for _, d := range []struct {
		file  string
		board dashboard
	}{
		{"penstock-pool.json", newDashboard("Penstock / Pool", "The queues, jobs and services of a pool.", selector("queue", `penstock_queue_jobs{job=~"$job"}`), poolRows())},
		{"penstock-workers.json", newDashboard("Penstock / Workers and agents", "The workers of a pool, their hosts and jails, and the agents that they run.", selector("agent", `penstock_agent_turns_total{job=~"$job"}`), workerRows())},
	} {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(d.board); err != nil {
			t.Fatal(err)
		}
		goldentest.Compare(t, "../deploy/grafana/"+d.file, b.String(), *update)
	}
}
