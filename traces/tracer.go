package traces

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Config is what a tracer works with.
type Config struct {
	Settings Settings
	// Service is the process's name in traces, unless OTEL_SERVICE_NAME has another one.
	Service string
	Release string
	// Worker is the name of the worker in this process; empty: there is none.
	Worker string
	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks let a program watch the export. Every field may be nil.
type Hooks struct {
	// Exported: the collector has taken spans.
	Exported func(n int)
	// Dropped: spans are lost; the reason is queue_full or export_failed.
	Dropped func(n int, reason string)
}

// Why spans are dropped.
const (
	queueFull    = "queue_full"
	exportFailed = "export_failed"
)

// flushLimit is how long the end of a process may take for what is still queued.
const flushLimit = 5 * time.Second

// A Tracer makes spans of what hooks tell. Its methods may be called at any time by any
// goroutine, and never block; only Close does.
type Tracer struct {
	worker string
	export exporter
}

// exporter takes spans until it is closed.
type exporter struct {
	put   func(span)
	close func()
}

// Open begins to export.
func Open(ctx context.Context, cfg Config) (*Tracer, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	export, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Tracer{cfg.Worker, export}, nil
}

// Close sends what is queued, for at most five seconds.
func (t *Tracer) Close() { t.export.close() }

// A span is a piece of a job's trace.
type span struct {
	rec        jobs.Record // of the job
	at, parent jobs.Trace  // the span itself, and what it is a child of; zero: nothing
	link       jobs.Trace  // what it has to do with besides; zero: nothing
	name       string
	kind       kind
	from, to   time.Time
	attributes []attribute
	failed     jobs.Reason // empty: it did not
}

type kind int

const (
	internal kind = iota
	producer
	consumer
)

// An attribute has a string, an int64 or a float64 as its value.
type attribute struct {
	key   string
	value any
}

// Submitted makes the span of a job that this process has accepted, which took so long.
func (t *Tracer) Submitted(rec jobs.Record, took time.Duration) {
	s := span{rec: rec, name: "submit " + rec.Queue, kind: producer, link: rec.Link()}
	s.at, s.parent = rec.Submission()
	s.last(took)
	s.attributes = append(messaging(rec, "submit", "send"), attribute{"penstock.source", rec.Source}, attribute{"penstock.priority", string(rec.Priority)})
	t.export.put(s)
}

// Waited makes the span of a job's time in its queue. The attempt that ends it begins now.
func (t *Tracer) Waited(rec jobs.Record, waited time.Duration) {
	s := span{rec: rec, name: "queue_wait", parent: rec.Span(0), to: begun(rec)}
	s.from = s.to.Add(-waited)
	s.at = s.parent.Child("queue_wait " + strconv.Itoa(rec.Attempt))
	s.attributes = append(about(rec), attribute{"penstock.attempt", int64(rec.Attempt)})
	t.export.put(s)
}

// Stage makes the span of a stage of an attempt that has ended just now.
func (t *Tracer) Stage(rec jobs.Record, stage string, took time.Duration) {
	s := span{rec: rec, name: stage, parent: rec.Span(rec.Attempt)}
	s.last(took)
	// A stage may come more than once in an attempt, but not twice at a time.
	s.at = s.parent.Child(stage + " " + strconv.FormatInt(s.from.UnixNano(), 10))
	s.attributes = append(about(rec), attribute{"cicd.pipeline.task.name", stage})
	t.export.put(s)
}

// Released makes the span of an attempt of this process's worker. Rec is the record as the
// attempt has left it. Of an attempt that lost its lease, or could not tell its end, the
// process that takes over the job makes the span, by WorkerLost: each span is exported once.
func (t *Tracer) Released(rec jobs.Record) {
	if rec.State == jobs.Executing {
		return
	}
	s := process(rec, time.Now())
	result := cmp.Or(rec.Outcome, rec.Reason.Ended("").Outcome)
	if result != jobs.Success {
		s.failed = rec.Reason
	}
	s.attributes = s.ended(t.worker, result)
	t.export.put(s)
}

// WorkerLost makes the span of an attempt whose worker stopped answering. Rec is the record
// as that worker left it; last is when it was last heard of, by the broker's clock.
func (t *Tracer) WorkerLost(rec jobs.Record, last time.Time) {
	s := process(rec, last)
	if s.to.Before(s.from) { // the clocks of worker and broker disagree
		s.to = s.from
	}
	s.failed = jobs.WorkerLost
	s.attributes = s.ended(rec.Worker, jobs.Error)
	t.export.put(s)
}

// process is the span of an attempt, until it ended.
func process(rec jobs.Record, to time.Time) span {
	return span{rec: rec, name: "process " + rec.Queue, kind: consumer, at: rec.Span(rec.Attempt), parent: rec.Span(0), from: begun(rec), to: to}
}

// ended are the attributes of an attempt that has ended.
func (s *span) ended(worker string, result jobs.Outcome) []attribute {
	rec, used := s.rec, s.rec.LastAttempt
	return append(messaging(rec, "process", "process"),
		attribute{"penstock.attempt", int64(rec.Attempt)},
		attribute{"penstock.state", string(rec.State)},
		attribute{"cicd.worker.name", worker},
		attribute{"cicd.pipeline.result", string(result)},
		attribute{"error.type", string(s.failed)},
		attribute{"gen_ai.usage.input_tokens", used.Usage.Input},
		attribute{"gen_ai.usage.output_tokens", used.Usage.Output},
		attribute{"penstock.cost_usd", used.CostUSD},
	)
}

// last says that the span ends now, and how long it was.
func (s *span) last(took time.Duration) {
	s.to = time.Now()
	s.from = s.to.Add(-took)
}

// begun is when the attempt was claimed.
func begun(rec jobs.Record) time.Time {
	if rec.Claimed == nil { // a record that no attempt has written
		return time.Now()
	}
	return *rec.Claimed
}

// about are the attributes of each span of a job.
func about(rec jobs.Record) []attribute {
	return []attribute{{"cicd.pipeline.run.id", rec.ID}}
}

// messaging are the attributes of the spans that hand a job on.
func messaging(rec jobs.Record, name, kind string) []attribute {
	return append(about(rec),
		attribute{"messaging.system", "nats"},
		attribute{"messaging.operation.name", name},
		attribute{"messaging.operation.type", kind},
		attribute{"messaging.destination.name", rec.Queue},
		attribute{"messaging.message.id", rec.ID},
		attribute{"messaging.message.conversation_id", rec.Session},
		attribute{"gen_ai.agent.name", rec.Agent},
		attribute{"penstock.batch", rec.Batch},
		attribute{"penstock.item", rec.Item},
		attribute{"penstock.tenant", rec.Tenant},
	)
}
