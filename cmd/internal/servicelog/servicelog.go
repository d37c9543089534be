// Package servicelog writes what services say about themselves: that they are ready, that
// their settings were read again, why they end. People get a sentence. Where the log is JSON
// all that a service writes is a line of it, from the first to the last.
package servicelog

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// The parts of a service, which its lines have as their component.
const (
	InService    = "service" // the process: its start, its settings, its end
	InBroker     = "broker"  // the NATS server
	InDispatcher = "dispatcher"
	InHTTP       = "http"
	InWebhooks   = "webhooks"
	InTraces     = "traces"
	InWorker     = "worker"
)

// Component is the attribute that names a part of a service.
func Component(part string) slog.Attr { return slog.String("component", part) }

// A Notice is what a service tells whoever started it, whatever log.level is: that it is
// ready, that its settings were read again, why it ends.
type Notice struct {
	Level slog.Level
	Text  string // for people
	// Message and Attrs say the same in a log of JSON.
	Message string
	Attrs   []slog.Attr
}

// Say writes a notice of a service: as text, or as a line of its log where that is JSON.
func Say(s cli.Shell, n Notice) {
	if !s.Config.LogsJSON() {
		s.Err.Printf("penstock: %s\n", n.Text)
		return
	}
	attrs := append([]slog.Attr{Component(InService)}, n.Attrs...)
	s.Config.Logger(s.Err, slog.LevelDebug).LogAttrs(context.Background(), n.Level, n.Message, attrs...)
}

// mark marks the commands that run until they are stopped.
const mark = "penstock_service"

// Mark returns the annotations of a command that is a service: all that it says, also why
// it ends, is in its log where that is JSON.
func Mark() map[string]string { return map[string]string{mark: "true"} }

// End reports how a command ended, as [cli.Report] does, or, if it is a service, in its log, and
// returns its exit code.
func End(s cli.Shell, annotations map[string]string, err error) int {
	if err == nil || annotations[mark] == "" || !s.Config.LogsJSON() {
		return cli.Report(s.Err, err)
	}
	attrs := []slog.Attr{slog.Any("err", err), slog.Int("exit_code", cli.Code(err))}
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Hint != "" {
		attrs = append(attrs, slog.String("hint", e.Hint))
	}
	Say(s, Notice{Level: slog.LevelError, Message: "ended with an error", Attrs: attrs})
	return cli.Code(err)
}

// Warn reports what does not keep a command from its work.
func Warn(s cli.Shell, annotations map[string]string, err error) {
	if annotations[mark] == "" {
		s.Err.Printf("penstock: %v\n", err)
		return
	}
	Say(s, Notice{Level: slog.LevelWarn, Text: err.Error(), Message: "started with a warning", Attrs: []slog.Attr{slog.Any("err", err)}})
}

// Adopt has the log of a service take what libraries write to the standard log.
func Adopt(s cli.Shell, annotations map[string]string) {
	if annotations[mark] != "" && s.Config.LogsJSON() {
		slog.SetDefault(s.Config.Logger(s.Err, s.Config.Level()).With(Component(InService)))
	}
}
