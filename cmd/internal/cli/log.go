package cli

import (
	"io"
	"log/slog"
)

type levelText = slog.Level

// Level is the least level that is logged.
func (c Config) Level() slog.Level {
	var level levelText
	if level.UnmarshalText([]byte(c.Log.Level)) != nil {
		return slog.LevelWarn // Load has refused anything else
	}
	return level
}

// Logger returns the process's log, on w, from a level on. Output of agents never
// goes there.
func (c Config) Logger(w io.Writer, level slog.Leveler) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: logged}
	if c.LogsJSON() {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// LogsJSON reports whether each line of a service is a JSON object.
func (c Config) LogsJSON() bool { return c.Log.Format == "json" }

// logged writes durations in seconds, as everything else of ours that is read by
// programs, and leaves out errors that did not happen.
func logged(_ []string, a slog.Attr) slog.Attr {
	switch {
	case a.Value.Kind() == slog.KindDuration:
		return slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
	case a.Key == "err" && (a.Value.Equal(slog.AnyValue(nil)) || a.Value.Equal(slog.StringValue(""))):
		return slog.Attr{}
	}
	return a
}
