package worker

import (
	"log/slog"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/outcome"
)

// A stopwatch reports how long the steps of an attempt take.
type stopwatch struct {
	hook   func(rec jobs.Record, step string, took time.Duration) // may be nil
	rec    jobs.Record
	result *outcome.Result
}

// stage reports a step's time and returns it in seconds.
func (s stopwatch) stage(name string, began time.Time) float64 {
	took := time.Since(began)
	if s.hook != nil {
		s.hook(s.rec, name, took)
	}
	return took.Seconds()
}

// took reports a step's time, adds it to the result, and returns it in seconds.
func (s stopwatch) took(name string, began time.Time) float64 {
	seconds := s.stage(name, began)
	s.result.Took(name, seconds)
	return seconds
}

// A cleanup closes what the steps of an attempt opened. A failure is reported; it does not
// undo a result that is already there.
type cleanup struct {
	times    stopwatch
	log      *slog.Logger
	leftover func(what string)
}

// release closes one thing, and reports the time that it took.
func (c cleanup) release(what string, closing func() error) {
	defer c.times.stage("cleanup", time.Now())
	if err := closing(); err != nil {
		c.log.Error("could not be cleaned up", "what", what, "err", err)
		c.leftover(what)
	}
}
