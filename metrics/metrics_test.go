package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options are those of a pool with five queues.
func options() Options {
	return Options{
		Queues: []string{"default", "gpu", "night", "web", "mobile"}, Agents: []string{"claude", "codex", "command"}, Keys: map[string]string{"main": "anthropic", "spare": "openai"},
	}
}

func worker(t testing.TB) (*prometheus.Registry, *Worker) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	w := NewWorker(reg, options())
	NewNATS(reg, "worker")
	NewTraces(reg)
	return reg, w
}

func dispatcher(t testing.TB, read ReadState) (*prometheus.Registry, *Dispatcher) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	d := NewDispatcher(reg, options())
	d.State(reg, read, time.Second)
	NewNATS(reg, "dispatcher")
	NewTraces(reg)
	NewHTTP(reg, options())
	return reg, d
}

func noState(context.Context) (State, error) { return State{}, nil }

// budgeted is the state of a pool with all series that there can be.
func budgeted(context.Context) (State, error) {
	return State{Budgets: []Spending{{Budget: "pool/day", Unit: "usd"}, {Budget: "pool/day", Unit: "tokens"}}, Quotas: []Quota{{Key: "queue:*"}, {Key: "queue:*", Bytes: true}}}, nil
}

// hostile are values that no label may take.
var hostile = []string{"", "nonsense", "\xff\xfe", "a\nb", strings.Repeat("x", 1000), "other"}

// useWorker calls everything, with good values and with any.
func useWorker(w *Worker) {
	for i, bad := range append(hostile, "default", "claude", "success", "ok", "workspace", "too_large", "agent", "worktree") {
		for n := range 50 {
			value := bad
			if i < 2 {
				value = fmt.Sprint(bad, n)
			}
			record := jobs.Record{Queue: value, Isolation: jobs.Isolation(value)}
			w.Claimed(record, time.Duration(n-3)*time.Second)
			w.Ended(jobs.Ended{Outcome: jobs.Outcome(value)})
			w.Requeued(jobs.Reason(value))
			w.Finished(record, jobs.Result{Outcome: jobs.Outcome(value), Reason: jobs.Reason(value), Durations: jobs.Durations{Total: float64(n)}})
			w.Stage(record, value, time.Second)
			w.LeaseLost()
			w.SandboxStarted(jobs.Isolation(value), time.Millisecond, nil)
			w.SandboxStarted(jobs.Isolation(value), time.Millisecond, errors.New("no"))
			w.OOMKilled(jobs.Isolation(value))
			w.Refused(event.JailViolation{Kind: "network", Host: value, Reason: value})
			w.Reached(event.JailNetwork{Hosts: []event.Host{{Host: value, Connections: n - 3}}, Sent: int64(n - 3), Received: 5})
			w.Removed(value, n-3)
			w.AgentExited(value, value)
			w.Hung(value, value)
			w.Spent(value, jobs.Usage{Input: 1, Output: -5, CacheRead: 2, CacheWrite: 3}, float64(n-3))
			w.Turn(value)
			w.RateLimited(value)
			w.BudgetReached(value == "")
			w.ModelLimits(ModelLimit{value, value, n, time.Duration(n-3) * time.Second, n > 3})
			w.EventStored(jobs.Kind(value), n, time.Millisecond)
			w.EventsDropped(value, 1)
			w.Heartbeat(time.Now())
		}
	}
	w.Spent("claude", jobs.Usage{}, math.NaN())
	w.Draining(true)
	w.Disk(1<<40, 5, true)
	w.Workspaces(1<<40, -1)
	w.Slots(4)
	w.Busy(2)
	w.Busy(-1)
}

func useDispatcher(d *Dispatcher) {
	for i, bad := range append(hostile, "default", "batch", "invalid", "sse", "GET /v1/jobs", "GET") {
		for n := range 50 {
			value := bad
			if i < 2 {
				value = fmt.Sprint(bad, n)
			}
			d.Submitted(value, value)
			d.Deduplicated(value)
			d.Rejected(value, value)
		}
	}
	d.Leader(true)
}

// series are all of them, as name{label="value",…}.
func series(t testing.TB, reg prometheus.Gatherer) (map[string]bool, int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names, lines := map[string]bool{}, 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			names[f.GetName()+fmt.Sprint(m.GetLabel())] = true
			lines++
			if h := m.GetHistogram(); h != nil {
				lines += len(h.GetBucket()) + 2 // +Inf, sum and count, without the one above
			}
		}
	}
	return names, lines
}

// TestSeries: the series are those of the beginning whatever happens, but for
// queues that a dispatcher meets, and not more than a small Prometheus takes from
// hundreds of workers.
func TestSeries(t *testing.T) {
	check := func(name string, reg prometheus.Gatherer, most int, use func()) {
		before, _ := series(t, reg)
		use()
		after, lines := series(t, reg)
		for s := range after {
			if !before[s] && (name != "dispatcher" || !strings.Contains(s, `name:"queue"`)) {
				t.Errorf("%s: %s appeared later", name, s)
			}
		}
		if lines > most {
			t.Errorf("%s: %d series, at most %d are allowed", name, lines, most)
		}
		t.Logf("%s: %d series", name, lines)
	}
	reg, w := worker(t)
	check("worker", reg, 600, func() { useWorker(w) })
	dreg, d := dispatcher(t, noState)
	// A hundred queues more, of seven series for their state and one for each door
	// that jobs came through.
	check("dispatcher", dreg, 1000, func() { useDispatcher(d) })
}

func TestLint(t *testing.T) {
	reg, _ := worker(t)
	dreg, _ := dispatcher(t, noState)
	for _, g := range []prometheus.Gatherer{reg, dreg, NewRegistry(Info{Version: "v0.1.0", Revision: "abc"})} {
		problems, err := testutil.GatherAndLint(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, namespace) {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
}

func value(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != namespace+"_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetName()+"="+l.GetValue())
			}
			if !slices.Equal(got, labels) {
				continue
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				return m.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				return m.GetHistogram().GetSampleSum()
			}
			return m.GetGauge().GetValue()
		}
	}
	t.Errorf("%s%v is not there", name, labels)
	return math.NaN()
}

func TestWorkerCounts(t *testing.T) {
	reg, w := worker(t)
	w.Slots(4)
	w.Busy(3)
	w.Busy(-1)
	w.Claimed(jobs.Record{Queue: "gpu", Isolation: jobs.IsolationWorktree}, 90*time.Second)
	w.Ended(jobs.Ended{Outcome: jobs.Error})
	w.Requeued(jobs.WorkerLost)
	w.Finished(jobs.Record{Queue: "gpu"}, jobs.Result{Outcome: jobs.TimedOut, Reason: jobs.TimeLimit, Durations: jobs.Durations{Total: 7}})
	w.Finished(jobs.Record{Queue: "gpu"}, jobs.Result{Outcome: jobs.Success, Durations: jobs.Durations{Total: 5}})
	w.Finished(jobs.Record{Queue: "elsewhere"}, jobs.Result{Outcome: "odd", Reason: "odder"})
	w.Stage(jobs.Record{}, "provision", 2*time.Second)
	w.LeaseLost()
	w.SandboxStarted(jobs.IsolationWorktree, time.Second, nil)
	w.SandboxStarted(jobs.IsolationWorktree, time.Hour, errors.New("no"))
	w.AgentExited("claude", "limit")
	w.Hung("idle", "kill")
	w.Hung("idle", "patience")
	w.Spent("claude", jobs.Usage{Input: 10, Output: 5, CacheRead: 3, CacheWrite: 2}, 0.25)
	w.EventStored(jobs.ToolStarted, 100, 10*time.Millisecond)
	w.EventStored(jobs.ToolEnded, 50, 10*time.Millisecond)
	w.Heartbeat(time.Unix(1700000000, 0))
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"worker_slots", nil, 4},
		{"worker_slots_in_use", nil, 2},
		{"worker_heartbeat_timestamp_seconds", nil, 1700000000},
		{"jobs_started_total", []string{"queue=gpu"}, 1},
		{"job_queue_wait_seconds", []string{"queue=gpu"}, 90},
		{"job_attempts_total", []string{"outcome=error"}, 1},
		{"job_retries_total", []string{"fault=pool"}, 1},
		{"jobs_finished_total", []string{"outcome=timeout", "queue=gpu"}, 1},
		{"jobs_finished_total", []string{"outcome=other", "queue=other"}, 1},
		{"jobs_unsuccessful_total", []string{"reason=time_limit"}, 1},
		{"jobs_unsuccessful_total", []string{"reason=other"}, 1},
		{"job_duration_seconds", []string{"queue=gpu"}, 12},
		{"job_stage_seconds", []string{"stage=provision"}, 2},
		{"job_leases_lost_total", nil, 1},
		{"sandbox_starts_total", []string{"isolation=worktree", "result=error"}, 1},
		{"sandbox_start_seconds", []string{"isolation=worktree"}, 1},
		{"agent_exits_total", []string{"agent=claude", "class=limit"}, 1},
		{"agent_hangs_total", []string{"step=kill", "what=idle"}, 1},
		{"agent_tokens_total", []string{"agent=claude", "direction=cache_read"}, 3},
		{"agent_cost_usd_total", []string{"agent=claude"}, 0.25},
		{"events_published_total", []string{"type=tool"}, 2},
		{"event_bytes_total", nil, 150},
		{"event_publish_seconds", nil, 0.02},
		{"nats_connected", []string{"component=worker"}, 0},
	} {
		if got := value(t, reg, c.name, c.labels...); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s%v = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// Keys can be replaced: those that are gone have no series any more, and those that stay keep theirs.
func TestKeysAreNamedAgain(t *testing.T) {
	reg, w := worker(t)
	for key, api := range map[string]string{"main": "anthropic", "spare": "openai"} {
		w.ModelLimits(ModelLimit{API: api, Key: key, Refused: true})
	}
	w.NameKeys(map[string]string{"main": "anthropic", "new": "google"})
	w.ModelLimits(ModelLimit{API: "openai", Key: "spare", Refused: true}) // a moment too late
	w.ModelLimits(ModelLimit{API: "google", Key: "new", Refused: true})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "penstock_model_key_refused" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetGauge().GetValue() == 1 {
				got = append(got, m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue())
			}
		}
	}
	if want := []string{"anthropic main", "google new"}; !slices.Equal(got, want) {
		t.Errorf("refused are %q, want %q", got, want)
	}
}

func TestDispatcherCounts(t *testing.T) {
	reg, d := dispatcher(t, noState)
	d.Submitted("gpu", "batch")
	d.Submitted("of-somebody-else", "cli")
	d.Deduplicated("batch")
	d.Rejected("nats", "invalid")
	d.Leader(true)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"jobs_submitted_total", []string{"queue=gpu", "source=batch"}, 1},
		{"jobs_deduplicated_total", []string{"source=batch"}, 1},
		{"jobs_rejected_total", []string{"reason=invalid", "source=nats"}, 1},
		{"jobs_submitted_total", []string{"queue=of-somebody-else", "source=cli"}, 1},
		{"leader", nil, 1},
	} {
		if got := value(t, reg, c.name, c.labels...); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s%v = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// Requests are counted by what they are about, whatever their route and their status are.
func TestHTTPCounts(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	h := NewHTTP(reg, options())
	before, _ := series(t, reg)
	h.Answered("GET /v1/jobs/{id}", 200, time.Second)
	h.Answered("GET /v1/jobs", 404, time.Second)
	h.Answered("GET /v1/jobs/{id}/events", 200, time.Hour)
	for _, bad := range hostile {
		h.Answered(bad, 0, time.Second)
		h.Answered("GET /v1/"+bad, 401, time.Second)
	}
	after, _ := series(t, reg)
	if !maps.Equal(before, after) {
		t.Errorf("series have appeared later: %v", after)
	}
	for _, c := range []struct {
		resource, class string
		want            float64
	}{{"jobs", "2xx", 2}, {"jobs", "4xx", 1}, {"other", "5xx", float64(len(hostile))}, {"other", "4xx", float64(len(hostile))}, {"queues", "2xx", 0}} {
		if got := value(t, reg, "http_requests_total", "class="+c.class, "resource="+c.resource); got != c.want {
			t.Errorf("%s, %s: %v, want %v", c.resource, c.class, got, c.want)
		}
	}
}

func TestState(t *testing.T) {
	at := time.Unix(1700000000, 0)
	reg, _ := dispatcher(t, func(context.Context) (State, error) {
		return State{Queues: []Stat{
			{Queue: "gpu", Pending: 3, Delayed: 3, QuotaWaiting: 2, KeyRefused: 1, BudgetWaiting: 4, BudgetParked: 5, Executing: 2, Waiting: 4, OldestPending: at, Paused: true, Slots: 6},
			{Queue: "new", Pending: 8}, {Queue: "not a queue", Pending: 5, OldestPending: at.Add(time.Hour)}, {Queue: "*", Pending: 7, OldestPending: at.Add(time.Minute)},
		}, Claiming: 3, Closed: 1, DeadLetters: 9, StoreBytes: 1 << 20, StoreLimit: -1, BackupVerified: at, Budgets: []Spending{{"queue:gpu/day", "usd", 1.5, 50}, {"queue:gpu/day", "tokens", 7, 100}}, Quotas: []Quota{{"label:owner=*", false, 4, 10}, {"label:owner=*", true, 5 << 20, 9 << 20}}}, nil
	})
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"queue_jobs", []string{"queue=gpu", "state=pending"}, 3},
		{"queue_jobs", []string{"queue=gpu", "state=waiting"}, 4},
		{"jobs_held", []string{"reason=quota_waiting"}, 2},
		{"jobs_held", []string{"reason=key_refused"}, 1},
		{"jobs_held", []string{"reason=budget_waiting"}, 4},
		{"jobs_held", []string{"reason=budget_parked"}, 5},
		{"queue_jobs", []string{"queue=default", "state=pending"}, 0},
		{"queue_jobs", []string{"queue=new", "state=pending"}, 8},
		{"queue_jobs", []string{"queue=other", "state=pending"}, 12},
		{"queue_oldest_pending_timestamp_seconds", []string{"queue=gpu"}, 1700000000},
		{"queue_oldest_pending_timestamp_seconds", []string{"queue=other"}, 1700000060},
		{"queue_oldest_pending_timestamp_seconds", []string{"queue=web"}, 0},
		{"queue_paused", []string{"queue=gpu"}, 1},
		{"queue_slots", []string{"queue=gpu"}, 6},
		{"queue_slots", []string{"queue=web"}, 0},
		{"workers", []string{"state=claiming"}, 3},
		{"workers", []string{"state=closed"}, 1},
		{"dead_letters", nil, 9},
		{"store_bytes", nil, 1 << 20},
		{"store_limit_bytes", nil, 0},
		{"backup_verified_timestamp_seconds", nil, 1700000000},
		{"backup_failed_timestamp_seconds", nil, 0},
		{"budget_spent", []string{"budget=queue:gpu/day", "unit=usd"}, 1.5},
		{"budget_limit", []string{"budget=queue:gpu/day", "unit=tokens"}, 100},
		{"quota_open_jobs", []string{"quota=label:owner=*"}, 4},
		{"quota_limit_jobs", []string{"quota=label:owner=*"}, 10},
		{"quota_stored_bytes", []string{"quota=label:owner=*"}, 5 << 20},
		{"quota_limit_bytes", []string{"quota=label:owner=*"}, 9 << 20},
	} {
		if got := value(t, reg, c.name, c.labels...); got != c.want {
			t.Errorf("%s%v = %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// TestStateCannotBeRead: a broker that does not answer is counted, and takes
// neither the other series nor the scrape with it.
func TestStateCannotBeRead(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	d := NewDispatcher(reg, options())
	d.State(reg, func(ctx context.Context) (State, error) {
		<-ctx.Done()
		return State{Queues: []Stat{{Queue: "gpu", Pending: 9}}}, ctx.Err()
	}, 20*time.Millisecond)
	begun := time.Now()
	if got := value(t, reg, "collector_errors_total"); got != 1 {
		t.Errorf("errors %v after the first scrape, want 1", got)
	}
	names, _ := series(t, reg)
	for name := range names {
		if strings.Contains(name, "queue_jobs") {
			t.Errorf("%s is there although reading failed", name)
		}
	}
	if got := value(t, reg, "collector_errors_total"); got != 3 {
		t.Errorf("errors %v after the third scrape, want 3", got)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("three scrapes took %s", took)
	}
}

func get(t testing.TB, h http.Handler, path, accept string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestAdmin(t *testing.T) {
	reg := NewRegistry(Info{Version: "v0.1.0"})
	NewWorker(reg, options())
	NewDispatcher(reg, options()).State(reg, noState, time.Second) // both in one process
	NewNATS(reg, "worker")
	NewNATS(reg, "dispatcher").Connected(true)
	var broker error
	h := Admin{
		Registry: reg, Info: Info{Version: "v0.1.0", Revision: "abc"}, Timeout: 50 * time.Millisecond,
		Live: []Check{{"loop", func(context.Context) error { return nil }}},
		Ready: []Check{{"nats", func(context.Context) error { return broker }}, {"drain", func(ctx context.Context) error {
			if broker != nil {
				<-ctx.Done() // a check that hangs is a check that fails
				return ctx.Err()
			}
			return nil
		}}},
	}.Handler()
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/livez", 200, "ok"},
		{"/readyz", 200, "ok"},
		{"/readyz?verbose", 200, "[+] nats\n[+] drain\nok"},
		{"/version", 200, `{"version":"v0.1.0","revision":"abc"`},
		{"/metrics", 200, "penstock_jobs_finished_total{outcome=\"success\",queue=\"gpu\"} 0"},
		{"/metrics", 200, "penstock_nats_connected{component=\"dispatcher\"} 1"},
		{"/metrics", 200, "go_goroutines"},
		{"/nothing", 404, ""},
	} {
		if code, body := get(t, h, c.path, ""); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %.300q, want %d %q", c.path, code, body, c.code, c.want)
		}
	}
	broker = errors.New("no connection")
	if code, body := get(t, h, "/readyz", ""); code != 503 || !strings.Contains(body, "[-] nats: no connection") || !strings.Contains(body, "2 of 2 checks failed") {
		t.Errorf("/readyz without a broker: %d %q", code, body)
	}
	if code, _ := get(t, h, "/livez", ""); code != 200 {
		t.Errorf("/livez without a broker: %d, want 200: a new process would not help", code)
	}
}

// Durations of jobs are shown with the trace of one of them, to those who ask for
// OpenMetrics. A trace that is not recorded cannot be looked at.
func TestExemplars(t *testing.T) {
	reg, w := worker(t)
	rec := jobs.NewRecord(jobs.NewID(), "default", jobs.Job{Queue: "gpu"}, time.Now())
	silent := rec
	silent.Trace.Parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	for _, r := range []jobs.Record{rec, silent} {
		w.Claimed(r, 2*time.Second)
		w.Stage(r, "agent", 40*time.Second)
		w.Finished(r, jobs.Result{Outcome: jobs.Success, Durations: jobs.Durations{Total: 50}})
	}
	server := httptest.NewServer(Admin{Registry: reg}.Handler())
	defer server.Close()
	scrape := func(accept string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := scrape("application/openmetrics-text; version=1.0.0")
	for _, want := range []string{
		`penstock_job_queue_wait_seconds_bucket{queue="gpu",le="5.0"} 2 # {trace_id="`, `penstock_job_stage_seconds_bucket{stage="agent",le="60.0"} 2 # {trace_id="`,
		`penstock_job_duration_seconds_bucket{queue="gpu",le="60.0"} 2 # {trace_id="`,
	} {
		if want += rec.Trace.TraceID() + `"}`; !strings.Contains(text, want) {
			t.Errorf("OpenMetrics has no line %s", want)
		}
	}
	if strings.Contains(text, silent.Trace.TraceID()) {
		t.Error("a trace that is not recorded is shown")
	}
	if plain := scrape("text/plain"); strings.Contains(plain, "trace_id") || !strings.Contains(plain, `penstock_job_duration_seconds_bucket{queue="gpu",le="60"} 2`) {
		t.Error("what knows no exemplars gets them")
	}
}

// TestHistogramForms asks for the protocol that carries native histograms.
func TestHistogramForms(t *testing.T) {
	for form, want := range map[Histograms][2]bool{Both: {true, true}, Classic: {true, false}, Native: {false, true}, "": {true, true}} {
		reg := prometheus.NewPedanticRegistry()
		opts := options()
		opts.Histograms = form
		NewWorker(reg, opts).Stage(jobs.Record{}, "agent", time.Minute)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "penstock_job_stage_seconds" {
				continue
			}
			h := f.GetMetric()[0].GetHistogram()
			// One bucket, which has no bound, is there for the exemplar.
			classic := slices.ContainsFunc(h.GetBucket(), func(b *dto.Bucket) bool { return !math.IsInf(b.GetUpperBound(), 1) })
			if got := [2]bool{classic, h.Schema != nil}; got != want {
				t.Errorf("%q: classic and native are %v, want %v", form, got, want)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	reg, w := worker(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { useWorker(w) })
		wg.Go(func() {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestReference holds docs/reference/metrics.md against what is registered.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Metrics\n\n`/metrics` is on the admin address of `penstock serve` and `penstock worker`, beside `/livez`, `/readyz` and\n`/version`. This page is made from the program: `make generate` writes it.\n\n" +
		"Values of labels are closed sets. `queue`, `agent`, `key`, `route`, `budget` and `quota` have the configured names; what is in no set\nbecomes `other`. Every series exists from the start of the process with the value 0, those of a budget or quota as long as the pool has it. Besides these there are the\n`go_`, `process_` and `promhttp_` series of the Go runtime, the process and the endpoint itself.\n\n`penstock_job_queue_wait_seconds`, `penstock_job_stage_seconds` and `penstock_job_duration_seconds` have\nexemplars with the `trace_id` of a job, for scrapers that ask for them; see [traces](../how-to/traces.md).\n")
	page(t, &b, "Every process", NewRegistry(Info{}))
	reg, _ := worker(t)
	page(t, &b, "Worker", reg)
	dreg, _ := dispatcher(t, budgeted)
	page(t, &b, "Dispatcher", dreg)
	goldentest.Compare(t, "../docs/reference/metrics.md", b.String(), *update)
}

// page writes the table of one registry.
func page(t testing.TB, b *strings.Builder, title string, reg prometheus.Gatherer) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "\n## %s\n\n| name | type | labels | meaning |\n|---|---|---|---|\n", title)
	configured := []string{"queue", "agent", "route", "budget", "quota", "key", "version", "revision", "goversion"}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), namespace) {
			continue // of the runtime and the process: client_golang documents them
		}
		values := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(values[l.GetName()], l.GetValue()) {
					values[l.GetName()] = append(values[l.GetName()], l.GetValue())
				}
			}
		}
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if slices.Contains(configured, name) {
				labels = append(labels, "`"+name+"`")
			} else {
				labels = append(labels, "`"+name+"`: "+strings.Join(values[name], ", "))
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, "; "), f.GetHelp())
	}
}
