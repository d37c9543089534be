//go:build !nootel

package traces

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receive starts a collector whose answers are those of a function, and has exporters of
// this process send to it.
func receive(t *testing.T, answer func(http.ResponseWriter, *http.Request, []*tracepb.Span)) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing is no message
		var request collectorpb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			t.Errorf("not an export: %v", err)
		}
		var spans []*tracepb.Span
		for _, from := range request.ResourceSpans {
			for _, scope := range from.ScopeSpans {
				spans = append(spans, scope.Spans...)
			}
		}
		answer(w, r, spans)
	}))
	t.Cleanup(s.Close)
	t.Setenv(endpoint, s.URL)
}

func begin(t *testing.T, hooks Hooks, most int) *Tracer {
	t.Helper()
	tracer, err := Open(t.Context(), Config{Settings: Settings{Queue: most}, Service: "test", Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func record(trace jobs.Trace) jobs.Record {
	now := time.Now()
	rec := jobs.NewRecord(jobs.NewID(), "default", jobs.Job{Queue: "q", Trace: trace}, now)
	rec.State, rec.Attempt, rec.Claimed, rec.Outcome = jobs.Finished, 1, &now, jobs.Success
	return rec
}

// Processes decide alike on what a sampler leaves out: of each job either all spans are
// exported or none. Where somebody else has begun the trace, that one decides.
func TestSampling(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	receive(t, func(_ http.ResponseWriter, _ *http.Request, spans []*tracepb.Span) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range spans {
			seen[hex.EncodeToString(s.TraceId)]++
		}
	})
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
	dispatcher, worker := begin(t, Hooks{}, defaultQueue), begin(t, Hooks{}, defaultQueue)
	tell := func(rec jobs.Record) {
		dispatcher.Submitted(rec, time.Second)
		worker.Waited(rec, time.Second)
		worker.Stage(rec, "agent", time.Second)
		worker.Released(rec)
	}
	for range 200 {
		tell(record(jobs.Trace{}))
	}
	const id = "4bf92f3577b34da6a3ce929d0e0e473"
	for range 5 {
		tell(record(jobs.Trace{Parent: "00-" + id + "6-00f067aa0ba902b7-01"}))
		tell(record(jobs.Trace{Parent: "00-" + id + "7-00f067aa0ba902b7-00"}))
	}
	dispatcher.Close()
	worker.Close()
	if seen[id+"6"] != 20 || seen[id+"7"] != 0 {
		t.Errorf("of 5 jobs in a sampled trace %d spans were exported, and %d of one that is not sampled", seen[id+"6"], seen[id+"7"])
	}
	delete(seen, id+"6")
	for trace, n := range seen {
		if n != 4 {
			t.Errorf("%d spans of trace %s were exported, want all 4", n, trace)
		}
	}
	if n := len(seen); n < 50 || n > 150 {
		t.Errorf("%d traces of 200 were exported, want about half", n)
	}
}

// The span of an attempt is exported once: by its worker, or by the process that takes the
// job over from it. It is never negative, although clocks may disagree.
func TestAttemptOfALostWorker(t *testing.T) {
	var spans []*tracepb.Span
	receive(t, func(_ http.ResponseWriter, _ *http.Request, s []*tracepb.Span) { spans = append(spans, s...) })
	tracer := begin(t, Hooks{}, defaultQueue)
	rec := record(jobs.Trace{})
	rec.State, rec.Outcome, rec.Worker = jobs.Executing, "", "w1"
	tracer.Released(rec)
	tracer.WorkerLost(rec, rec.Claimed.Add(time.Minute))
	rec.Attempt = 2
	tracer.WorkerLost(rec, rec.Claimed.Add(-time.Minute))
	tracer.Close()
	if len(spans) != 2 {
		t.Fatalf("%d spans were exported, want 2: %v", len(spans), spans)
	}
	for i, want := range []time.Duration{time.Minute, 0} {
		s := spans[i]
		if took := time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano); took != want || s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
			t.Errorf("attempt %d took %v and has the status %v, want %v and an error", i+1, took, s.Status, want)
		}
	}
}

// Whatever the collector does, each span is counted once: exported or dropped. The end
// waits for a collector that does not answer, but not long.
func TestEachSpanIsCounted(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, []*tracepb.Span){
		"takes them": func(http.ResponseWriter, *http.Request, []*tracepb.Span) {},
		"refuses them": func(w http.ResponseWriter, _ *http.Request, _ []*tracepb.Span) {
			w.WriteHeader(http.StatusBadRequest)
		},
		"is overloaded": func(w http.ResponseWriter, _ *http.Request, _ []*tracepb.Span) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"hangs": func(_ http.ResponseWriter, r *http.Request, _ []*tracepb.Span) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			receive(t, answer)
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			var exported, dropped, full atomic.Int64
			tracer := begin(t, Hooks{Exported: func(n int) { exported.Add(int64(n)) }, Dropped: func(n int, reason string) {
				dropped.Add(int64(n))
				if reason == queueFull {
					full.Add(int64(n))
				}
			}}, 10)
			const all = 1000
			var done sync.WaitGroup
			for range 4 {
				done.Go(func() {
					for range all / 4 {
						tracer.Released(record(jobs.Trace{}))
					}
				})
			}
			done.Wait()
			began := time.Now()
			tracer.Close()
			if took := time.Since(began); took > slowtest.Limit(flushLimit+3*time.Second) {
				t.Errorf("the end took %v", took)
			}
			if exported.Load()+dropped.Load() != all || (name == "takes them") != (exported.Load() > 0) || full.Load() == 0 {
				t.Errorf("%d spans were exported, %d dropped, %d of them by the queue", exported.Load(), dropped.Load(), full.Load())
			}
		})
	}
}
