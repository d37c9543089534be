// Package watchdog finds out that an agent hangs, by its signs of life: it writes nothing, or too
// much, or it does not end. It decides and acts on nothing: a [Watchdog] is a value, its caller
// tells it what happens and what time it is.
package watchdog

import (
	"cmp"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// Hangs says when an agent hangs, besides idle_timeout, which is the job's. A
// field that is zero has the value of [DefaultHangs].
type Hangs struct {
	// Start is how long it may write nothing at all. Of a program of the
	// user's own that says nothing: there idle_timeout has to do.
	Start time.Duration
	// Halt is how long a process of it may be stopped by a signal while it is
	// silent.
	Halt time.Duration
	// Exit is how long it may take to end when its last turn is over and its
	// input is closed. What it did counts all the same.
	Exit time.Duration
	// Output is how many bytes one run may write. A line counts as a KiB at least,
	// which is about the cost of keeping it.
	Output int64
	// Retries is how often in a row it may try the model API again, with
	// nothing in between.
	Retries int
	// Step bounds each step on the way to its end.
	Step time.Duration
}

// DefaultHangs are the default limits.
func DefaultHangs() Hangs {
	return Hangs{
		Start: 2 * time.Minute, Halt: time.Minute, Exit: 15 * time.Second,
		Output: 1 << 30, Retries: 30, Step: 5 * time.Second,
	}
}

// WithDefaults fills in the limits that are not set.
func (h Hangs) WithDefaults() Hangs {
	d := DefaultHangs()
	return Hangs{
		Start: cmp.Or(h.Start, d.Start), Halt: cmp.Or(h.Halt, d.Halt), Exit: cmp.Or(h.Exit, d.Exit),
		Output: cmp.Or(h.Output, d.Output), Retries: cmp.Or(h.Retries, d.Retries), Step: cmp.Or(h.Step, d.Step),
	}
}

// hang makes the finding of a limit.
func hang(what string, reason jobs.Reason, after time.Duration, message string) *event.Hang {
	return &event.Hang{What: what, Reason: reason, Seconds: after.Seconds(), Message: message}
}
