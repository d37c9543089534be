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
	opts := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
