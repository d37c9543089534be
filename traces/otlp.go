//go:build !nootel

package traces

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	otelattribute "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-run/penstock/jobs"
)

// maxError is how many bytes of an error are logged.
const maxError = 500

// scope is what spans name as what has made them.
const scope = "github.com/penstock-run/penstock/traces"

// open returns an exporter. The library takes from the environment what cfg does not have.
func open(ctx context.Context, cfg Config) (exporter, error) {
	// The library speaks to everyone by these alone. Its other words are for debugging.
	otel.SetLogger(logr.FromSlogHandler(cfg.Logger.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { cfg.Logger.Warn("export of traces", "err", err) }))
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		otelattribute.String("service.name", cfg.Service), otelattribute.String("service.version", cfg.Release),
	), resource.WithFromEnv()) // the last, so that the user has the last word
	if err != nil {
		return exporter{}, fmt.Errorf("what the variables of OpenTelemetry say of this service: %w", err)
	}
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return exporter{}, fmt.Errorf("open the export of traces: %w", err)
	}
	s := &sender{SpanExporter: client, log: cfg.Logger, hooks: cfg.Hooks}
	provider := sdk.NewTracerProvider(sdk.WithIDGenerator(ids{}), sdk.WithResource(about), sdk.WithSpanProcessor(&queue{
		SpanProcessor: sdk.NewBatchSpanProcessor(s, sdk.WithMaxQueueSize(cfg.Settings.Queue)), sender: s, most: int64(cfg.Settings.Queue),
	}))
	tracer := provider.Tracer(scope, trace.WithInstrumentationVersion(cfg.Release))
	return exporter{put: func(s span) { s.record(tracer) }, close: func() {
		// What is under way then is given up, and what waits behind it.
		late := time.AfterFunc(flushLimit, func() { _ = client.Shutdown(context.Background()) })
		defer late.Stop()
		if err := provider.Shutdown(context.Background()); err != nil {
			cfg.Logger.Warn("export of traces", "err", err)
		}
	}}, nil
}

// A queue is the library's, which drops spans that it has no room for and does not say
// so. This one does.
type queue struct {
	sdk.SpanProcessor
	sender *sender
	most   int64
}

// OnEnd queues a span.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.sender.queued.Add(1) > q.most {
		q.sender.queued.Add(-1)
		q.sender.dropped(1, queueFull)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// A sender sends spans to the collector, and counts what became of them.
type sender struct {
	sdk.SpanExporter
	log    *slog.Logger
	hooks  Hooks
	queued atomic.Int64 // spans, with those that are being sent
	failed atomic.Bool  // the last batch was lost
}

// ExportSpans sends a batch, and reports the first failure of many. It returns nil: the
// library would report each of them.
func (s *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	defer s.queued.Add(-int64(len(spans)))
	err := s.SpanExporter.ExportSpans(ctx, spans)
	before := s.failed.Swap(err != nil)
	switch {
	case err != nil:
		s.dropped(len(spans), exportFailed)
		if !before {
			text := err.Error() // with the answer, which may be a page of a proxy
			s.log.Warn("traces are not exported, and dropped until they are", "err", strings.ToValidUTF8(text[:min(len(text), maxError)], ""))
		}
		return nil
	case before:
		s.log.Info("traces are exported again")
	}
	if s.hooks.Exported != nil {
		s.hooks.Exported(len(spans))
	}
	return nil
}

func (s *sender) dropped(n int, reason string) {
	if s.hooks.Dropped != nil {
		s.hooks.Dropped(n, reason)
	}
}

// record hands the span to the library, whose sampler may leave out the job's trace.
func (s span) record(tracer trace.Tracer) {
	parent := place(s.parent)
	if submission, from := s.rec.Submission(); s.at != submission {
		// The sampler decides on the submission, and each process decides the same:
		// the decision is by the trace's id, or that of who has begun the trace.
		first := span{at: submission, name: "submit"}.start(tracer, place(from))
		parent = parent.WithTraceFlags(first.SpanContext().TraceFlags())
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(s.from), trace.WithSpanKind(kinds[s.kind]), trace.WithAttributes(values(s.attributes)...)}
	if s.link.TraceID() != "" {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: place(s.link)}))
	}
	made := s.start(tracer, parent, options...)
	if s.failed != "" {
		made.SetStatus(codes.Error, string(s.failed))
	}
	made.End(trace.WithTimestamp(s.to))
}

var kinds = map[kind]trace.SpanKind{internal: trace.SpanKindInternal, producer: trace.SpanKindProducer, consumer: trace.SpanKindConsumer}

// start begins the span, with the id that it has already.
func (s span) start(tracer trace.Tracer, parent trace.SpanContext, options ...trace.SpanStartOption) trace.Span {
	ctx := context.WithValue(context.Background(), ids{}, place(s.at))
	_, made := tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), s.name, options...)
	return made
}

// ids gives spans the ids that are in their context.
type ids struct{}

// NewIDs returns those of a root.
func (i ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	at, _ := ctx.Value(i).(trace.SpanContext)
	return at.TraceID(), at.SpanID()
}

// NewSpanID returns that of a span that has a parent.
func (i ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := i.NewIDs(ctx)
	return span
}

// place returns a place in a trace in the library's words; that of none is not valid.
func place(t jobs.Trace) trace.SpanContext {
	var c trace.SpanContextConfig
	// What cannot be read stays zero.
	c.TraceID, _ = trace.TraceIDFromHex(t.TraceID())
	c.SpanID, _ = trace.SpanIDFromHex(t.SpanID())
	c.TraceState, _ = trace.ParseTraceState(t.State)
	c.TraceFlags, c.Remote = trace.TraceFlags(0).WithSampled(t.Sampled()), true
	return trace.NewSpanContext(c)
}

// values leaves out attributes that say nothing.
func values(attributes []attribute) []otelattribute.KeyValue {
	var out []otelattribute.KeyValue
	for _, a := range attributes {
		switch v := a.value.(type) {
		case string:
			if v != "" {
				out = append(out, otelattribute.String(a.key, v))
			}
		case int64:
			if v != 0 {
				out = append(out, otelattribute.Int64(a.key, v))
			}
		case float64:
			if v != 0 {
				out = append(out, otelattribute.Float64(a.key, v))
			}
		}
	}
	return out
}
