package pool

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/traces"
)

// isService reports whether a process accepts or runs jobs, whosever the pool is.
func isService(owner string) bool { return owner == "serve" || owner == "worker" }

// worksAlone reports whether a process accepts jobs, and perhaps runs them, where the pool
// is its own.
func worksAlone(owner string) bool {
	return slices.Contains([]string{"run", "submit", "batch run", "mcp"}, owner)
}

// tracing is the export of traces; the zero value exports none.
type tracing struct{ tracer *traces.Tracer }

// trace begins to export the traces of a pool's jobs, where the environment asks for it.
func trace(ctx context.Context, shell cli.Shell, p *Pool, owner string, hooks Hooks) error {
	settings, err := traces.Read(os.Getenv)
	if err == nil && settings == nil {
		return nil
	}
	var tracer *traces.Tracer
	if err == nil {
		tracer, err = traces.Open(ctx, traces.Config{
			Settings: *settings, Service: "penstock-" + strings.ReplaceAll(owner, " ", "-"), Release: shell.Release,
			Worker: workerparts.Name(shell.Config), Logger: p.Logger.With(servicelog.Component(servicelog.InTraces)), Hooks: hooks.Traces,
		})
	}
	if err != nil {
		return cli.Usage("docs/how-to/traces.md has the variables; OTEL_SDK_DISABLED=true turns the export off", "export of traces: %w", err)
	}
	p.Tracing = tracing{tracer}
	p.undo = append(p.undo, func() error { tracer.Close(); return nil })
	return nil
}

// Hooks returns hooks that spans are made of, too.
func (t tracing) Hooks(h Hooks) Hooks {
	if t.tracer == nil {
		return h
	}
	claimed, stage, released := h.Queue.Claimed, h.Worker.Stage, h.Worker.Released
	h.Dispatcher.Accepted = t.tracer.Submitted
	h.Queue.Claimed = func(rec jobs.Record, waited time.Duration) {
		t.tracer.Waited(rec, waited)
		if claimed != nil {
			claimed(rec, waited)
		}
	}
	h.Queue.WorkerLost = t.tracer.WorkerLost
	h.Worker.Stage = func(rec jobs.Record, name string, took time.Duration) {
		t.tracer.Stage(rec, name, took)
		if stage != nil {
			stage(rec, name, took)
		}
	}
	h.Worker.Released = func(rec jobs.Record) {
		t.tracer.Released(rec)
		if released != nil {
			released(rec)
		}
	}
	return h
}
