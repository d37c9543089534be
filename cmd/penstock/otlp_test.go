package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A collector receives traces as OTLP over HTTP has them.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	spans  []exported
	bodies bytes.Buffer // all that was sent
	header http.Header  // of the last request
}

// exported is a span as it was received.
type exported struct {
	*tracepb.Span
	resource map[string]string
}

func (e exported) id() string     { return hex.EncodeToString(e.SpanId) }
func (e exported) parent() string { return hex.EncodeToString(e.ParentSpanId) }

// within reports whether the span is no longer than another one.
func (e exported) within(o exported) bool {
	return e.StartTimeUnixNano >= o.StartTimeUnixNano && e.StartTimeUnixNano <= e.EndTimeUnixNano && e.EndTimeUnixNano <= o.EndTimeUnixNano
}

func words(attributes []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			values[a.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			values[a.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return values
}

func newCollector(f *fixture) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(c)
	f.Cleanup(c.Close)
	return c
}

// ServeHTTP takes one request.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorpb.ExportTraceServiceRequest
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "not an export of traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = r.Header
	c.bodies.Write(body)
	for _, from := range request.ResourceSpans {
		for _, scope := range from.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, exported{span, words(from.Resource.Attributes)})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// of returns the spans of a job.
func (c *collector) of(job string) (spans []exported) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if words(s.Attributes)["cicd.pipeline.run.id"] == job {
			spans = append(spans, s)
		}
	}
	return spans
}

// env has a program export to the collector, soon.
func (c *collector) env(more ...string) []string {
	return append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}, more...)
}

// tree writes the spans below one, in the order in which they ended: what begins together has
// a beginning that is known less exactly.
func tree(spans []exported, at exported, indent string) string {
	text := indent + at.Name + "\n"
	below := slices.DeleteFunc(slices.Clone(spans), func(s exported) bool { return s.parent() != at.id() })
	slices.SortFunc(below, func(a, b exported) int { return cmp.Compare(a.EndTimeUnixNano, b.EndTimeUnixNano) })
	for _, s := range below {
		text += tree(spans, s, indent+" ")
	}
	return text
}

// A job that is accepted by one process and tried twice by another one is one trace, whose
// root is its submission. Nothing in it says what the job is about.
func TestExportedTrace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := newCollector(f)
	f.env = c.env("OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	f.serve("--slots", "0")
	f.worker("--name", "w1")
	id := f.submit(`echo "parent=$TRACEPARENT."; echo pr1vate >new.txt; [ "$PENSTOCK_ATTEMPT" = 2 ] || kill -9 $$`, "--max-attempts", "2",
		"--check", "true # pr1vate", "--deliver", "branch", "--env", "WORD=pr1vate")
	f.run("wait", id)
	f.eventually(time.Minute, "the spans have arrived", func() bool { return len(c.of(id)) >= strings.Count(twoAttempts, "\n") })
	rec, spans := f.record(id), c.of(id)
	root := slices.IndexFunc(spans, func(s exported) bool { return s.parent() == "" })
	if root < 0 {
		t.Fatal("no span is a root")
	}
	if got := tree(spans, spans[root], ""); got != twoAttempts {
		t.Errorf("got\n%s\nwant\n%s", got, twoAttempts)
	}
	events := f.run("logs", "-o", "jsonl", id)
	for _, s := range spans {
		if trace := hex.EncodeToString(s.TraceId); trace != rec.Span(0).TraceID() {
			t.Errorf("%s is part of trace %s, want %s", s.Name, trace, rec.Span(0).TraceID())
		}
		f.inOrder(s, spans)
		of := words(s.Attributes)
		service := "penstock-worker"
		switch name, _, _ := strings.Cut(s.Name, " "); name {
		case "submit":
			service = "penstock-serve"
			f.says(of, "messaging.operation.type", "send")
		case "process":
			attempt := of["penstock.attempt"]
			f.says(of, "cicd.worker.name", "w1")
			f.says(of, "cicd.pipeline.result", map[string]string{"1": "error", "2": "success"}[attempt])
			f.says(of, "error.type", map[string]string{"1": "agent_crashed", "2": ""}[attempt])
			f.says(of, "messaging.system", "nats")
			if failed := s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR; failed != (attempt == "1") {
				t.Errorf("attempt %s has the status %v", attempt, s.Status)
			}
			if parent := fmt.Sprintf("parent=00-%s-%s-01.", rec.Span(0).TraceID(), s.id()); !strings.Contains(events, parent) {
				t.Errorf("the agent of attempt %s did not print %s", attempt, parent)
			}
		}
		f.says(s.resource, "service.name", service)
		f.says(s.resource, "deployment.environment.name", "test")
	}
	if got := c.header.Get("X-Key"); got != "a b" {
		t.Errorf("requests have the header %q", got)
	}
	for _, private := range []string{"pr1vate", f.repo, "TRACEPARENT"} {
		if bytes.Contains(c.bodies.Bytes(), []byte(private)) {
			t.Errorf("%q was exported", private)
		}
	}
}

const twoAttempts = `submit default
 queue_wait
 process default
  provision
  jail
  cleanup
  agent
  collect
  cleanup
  publish
 queue_wait
 process default
  provision
  jail
  cleanup
  agent
  jail
  check
  collect
  deliver
  cleanup
  publish
`

func (f *fixture) says(of map[string]string, key, want string) {
	f.Helper()
	if of[key] != want {
		f.Errorf("%s is %q, want %q", key, of[key], want)
	}
}

// inOrder fails where a span is not within the attempt that it is part of, or is before
// the submission.
func (f *fixture) inOrder(s exported, all []exported) {
	f.Helper()
	for _, above := range all {
		switch {
		case s.parent() != above.id():
		case strings.HasPrefix(above.Name, "process") && !s.within(above):
			f.Errorf("%s is from %d to %d, and its attempt from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, above.StartTimeUnixNano, above.EndTimeUnixNano)
		case s.StartTimeUnixNano < above.StartTimeUnixNano || s.EndTimeUnixNano < s.StartTimeUnixNano:
			f.Errorf("%s is from %d to %d, and %s begins at %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, above.Name, above.StartTimeUnixNano)
		}
	}
}

// Of an attempt whose worker was killed, the worker that takes over the job exports the span.
func TestExportedTraceOfAKilledWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := newCollector(f)
	f.env = c.env()
	f.serve("--slots", "0")
	killed := f.worker("--name", "w1")
	id := f.submit("echo begun; " + onlyFirst)
	f.eventually(20*time.Second, "the agent runs", func() bool { return count(f.events(id), jobs.OutputLine) > 0 })
	killed.kill()
	f.worker("--name", "w2")
	f.run("wait", "--timeout", patience(60), id)
	attempts := func() []exported {
		return slices.DeleteFunc(c.of(id), func(s exported) bool { return !strings.HasPrefix(s.Name, "process") })
	}
	f.eventually(time.Minute, "both attempts have arrived", func() bool { return len(attempts()) >= 2 })
	all, spans := c.of(id), attempts()
	if len(spans) != 2 {
		t.Fatalf("%d attempts were exported, want 2: %v", len(spans), spans)
	}
	for _, s := range all {
		if s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s ends before it begins", s.Name)
		}
	}
	for i, s := range spans {
		of := words(s.Attributes)
		f.says(of, "penstock.attempt", []string{"1", "2"}[i])
		f.says(of, "cicd.worker.name", []string{"w1", "w2"}[i])
		f.says(of, "error.type", []string{"worker_lost", ""}[i])
		if s.parent() != f.record(id).Span(0).SpanID() {
			t.Errorf("attempt %d is a child of %s", i+1, s.parent())
		}
	}
	waits := slices.DeleteFunc(all, func(s exported) bool { return s.Name != "queue_wait" })
	if len(waits) != 2 {
		t.Fatalf("%d waits were exported, want 2", len(waits))
	}
	again := slices.MaxFunc(waits, func(a, b exported) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	if apart := time.Duration(again.StartTimeUnixNano - spans[0].EndTimeUnixNano).Abs(); apart > slowtest.Limit(time.Second) {
		t.Errorf("the job waits again from %v away from where its first attempt ended", apart)
	}
}

// A job that is submitted in a trace has its spans below the sender's. The jobs of a batch
// have traces of their own, with a link to the sender's span. A command with a pool of its
// own exports what it does.
func TestExportedTraceOfABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := newCollector(f)
	const build = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	f.env = c.env("TRACEPARENT="+build, "OTEL_SERVICE_NAME=mine")
	sender := jobs.ReadTrace(build, "")
	f.run("run", "--repo", f.repo, "--", "true")
	submissions := func() (all []exported) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if strings.HasPrefix(s.Name, "submit") {
				all = append(all, s)
			}
		}
		return all
	}
	one := submissions()
	if len(one) != 1 || hex.EncodeToString(one[0].TraceId) != sender.TraceID() || one[0].parent() != sender.SpanID() || one[0].resource["service.name"] != "mine" {
		t.Fatalf("run has exported %v when it has ended", one)
	}
	f.run("batch", "run", f.issues(2, func(int) string { return "x" }), "--repo", f.repo, "--out", filepath.Join(t.TempDir(), "out"), "--", "true")
	traces := map[string]bool{}
	for _, s := range submissions()[1:] {
		traces[hex.EncodeToString(s.TraceId)] = true
		if len(s.Links) != 1 || hex.EncodeToString(s.Links[0].TraceId) != sender.TraceID() || hex.EncodeToString(s.Links[0].SpanId) != sender.SpanID() || s.parent() != "" {
			t.Errorf("a job of a batch is a child of %q and has the links %v", s.parent(), s.Links)
		}
	}
	if len(traces) != 2 || traces[sender.TraceID()] {
		t.Errorf("the jobs of a batch have the traces %v", slices.Collect(maps.Keys(traces)))
	}
}

// A collector that does not answer, refuses, or is not there holds up no job and no end of
// a service. What it has not taken is counted.
func TestCollectorThatIsAway(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client is gone
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hanging.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		http.Error(w, strings.Repeat("no", 10_000), http.StatusInternalServerError)
	}))
	t.Cleanup(refusing.Close)
	for name, c := range map[string]struct{ url, dropped string }{
		"hangs":   {hanging.URL, "queue_full"},
		"refuses": {refusing.URL, "export_failed"},
		"absent":  {fmt.Sprint("http://127.0.0.1:", jobstest.FreePort(t)), "export_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BSP_MAX_QUEUE_SIZE=4"}
			address := freeAddress(f)
			p, _ := f.serve("--slots", "2", "--admin", address)
			for range 3 {
				if out := f.run("wait", f.submit("true")); !strings.Contains(out, "success") {
					t.Errorf("the job ended with %s", out)
				}
			}
			lost := regexp.MustCompile(`penstock_spans_dropped_total\{reason="` + c.dropped + `"\} [1-9]`)
			f.eventually(time.Minute, "lost spans are counted", func() bool { return lost.MatchString(f.page("http://" + address + "/metrics")) })
			began := time.Now()
			p.end()
			if took := time.Since(began); took > slowtest.Limit(12*time.Second) || p.ProcessState.ExitCode() != 0 {
				t.Errorf("serve took %v to end, with %v", took, p.ProcessState)
			}
			if n := strings.Count(p.log.String(), "traces are not exported"); n > 1 || len(p.log.String()) > 5000 {
				t.Errorf("the log says %d times that traces are not exported, in %d bytes", n, len(p.log.String()))
			}
		})
	}
	t.Cleanup(func() {
		if len(asked) < 2 {
			t.Errorf("collectors were asked %d times", len(asked))
		}
	})
}

// Traces are exported only where that is asked for. What is asked for and cannot be done is
// an error at the start.
func TestExportIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := newCollector(f)
	for _, off := range []string{"OTEL_SDK_DISABLED=TRUE", "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=", "OTEL_TRACES_SAMPLER=always_off"} {
		f.env = c.env(off)
		f.run("run", "--repo", f.repo, "--", "true")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans) > 0 {
		t.Errorf("%d spans were exported", len(c.spans))
	}
	for _, wrong := range []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://user:pr1vate@collector", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_TRACES_SAMPLER_ARG=2", "OTEL_BSP_MAX_QUEUE_SIZE=-1",
	} {
		f.env = c.env("OTEL_TRACES_SAMPLER=traceidratio", wrong)
		name, _, _ := strings.Cut(wrong, "=")
		f.refused(2, []string{name, "OTEL_SDK_DISABLED"}, "run", "--repo", f.repo, "--", "true")
		_, _, said := f.try("worker")
		if strings.Contains(said, "pr1vate") {
			t.Errorf("an error has a password: %s", said)
		}
	}
	f.run("job", "ls") // has nothing to export
}
