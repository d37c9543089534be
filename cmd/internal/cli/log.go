package cli

import (
	"io"
	"log/slog"
)

type levelText = slog.Level

// Logger returns the process's log, on w. Output of agents never goes there.
func (c Config) Logger(w io.Writer) *slog.Logger {
	var level levelText
	if level.UnmarshalText([]byte(c.Log.Level)) != nil {
		level = slog.LevelWarn // Load has refused anything else
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
