package watchdog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// minLine is the least size for which a line counts.
const minLine = 1 << 10

// Processes are those of the agent. It is an interface because a test must stop them.
type Processes interface {
	// Activity is how much they have worked since their start.
	Activity() (cpu time.Duration, io int64)
	// Halted counts those that a signal has stopped.
	Halted() int
}

// A Watchdog finds out that an agent hangs, by its signs of life. It ends nothing.
type Watchdog struct {
	limits    Hangs
	idle      time.Duration // how long it may be silent within a turn
	greets    bool          // its protocol begins with a word of the agent
	processes Processes

	began, last time.Time // its start, and its last sign of life
	spoke       bool      // it has written a line
	written     int64     // bytes
	retries     int       // in a row
	retried     event.Retry
	because     jobs.Reason // why it tries again; empty: it does not
	measured    time.Time   // when did was looked at, while it starts
	did         activity
	looked      time.Time // when its processes were last looked at
	halted      time.Time // since when one is stopped; zero: none is
	closed      time.Time // when its input was closed; zero: it is open
}

// New returns the watchdog of an agent that may be silent for idle within a turn. Greets says
// that the agent's protocol begins with a word of its own.
func New(limits Hangs, idle time.Duration, greets bool) Watchdog {
	return Watchdog{limits: limits, idle: idle, greets: greets}
}

// Start begins all limits.
func (w *Watchdog) Start(now time.Time, p Processes) {
	w.processes, w.began, w.last, w.measured = p, now, now, now
}

// Touch notes a sign of life that is not a line.
func (w *Watchdog) Touch(now time.Time) { w.last = now }

// Wrote counts bytes, as they come.
func (w *Watchdog) Wrote(n int) { w.written += int64(n) }

// Last is when the agent showed the last sign of life.
func (w *Watchdog) Last() time.Time { return w.last }

// Quiet is how long there was no sign of life.
func (w *Watchdog) Quiet(now time.Time) time.Duration { return now.Sub(w.last) }

// InputClosed begins the time that the agent may take to exit.
func (w *Watchdog) InputClosed(now time.Time) { w.closed = now }

// InputOpen reports whether the agent may get more input.
func (w *Watchdog) InputOpen() bool { return w.closed.IsZero() }

// Flooded reports whether the agent wrote more than it may.
func (w *Watchdog) Flooded() bool { return w.written > w.limits.Output }

// progress are the events after which it is no longer the same call that the
// agent tries again.
var progress = []jobs.Kind{
	jobs.TurnStarted, jobs.TurnEnded, jobs.Message, jobs.MessageDelta, jobs.Thought, jobs.ThoughtDelta,
	jobs.ToolStarted, jobs.ToolDelta, jobs.ToolOutput, jobs.ToolEnded,
}

// Line notes the meaning of a line.
func (w *Watchdog) Line(now time.Time, length int, read agent.Read) {
	w.last, w.spoke, w.halted, w.because = now, true, time.Time{}, read.Retried
	w.written += int64(max(0, minLine-length))
	for _, e := range read.Events {
		if retry, ok := e.Payload.(event.Retry); ok {
			w.retries++
			w.retried = retry
		} else if slices.Contains(progress, e.Kind) {
			w.retries = 0
		}
	}
}

// Excess finds what needs no clock: too much output, too many retries.
func (w *Watchdog) Excess(now time.Time) *event.Hang {
	switch {
	case w.Flooded():
		return hang("output", jobs.OutputLimit, now.Sub(w.began), fmt.Sprintf("it wrote more than %v", jobs.Bytes(w.limits.Output)))
	case w.retries > w.limits.Retries:
		return hang("retry", jobs.RetryLimit, now.Sub(w.began), fmt.Sprintf("it tried the model API %d times and got nowhere (%s, status %d)",
			w.retries, cmp.Or(w.retried.Class, "no class"), w.retried.HTTP))
	}
	return nil
}

// Exiting looks at an agent whose last turn is over and whose input is closed.
func (w *Watchdog) Exiting(now time.Time) (*event.Hang, time.Duration) {
	over := now.Sub(w.closed)
	if over >= w.limits.Exit {
		return hang("exit", "", over, "its last turn is over, and it did not exit"), 0
	}
	return nil, w.limits.Exit - over
}

// Silent is the finding on silence. An agent that the model API told to retry in hours
// waits silently, and the API is the cause.
func (w *Watchdog) Silent(now time.Time) *event.Hang {
	reason, message := jobs.IdleLimit, fmt.Sprintf("it was silent for %v", w.idle)
	if jobs.Reasons[w.because].Fault == jobs.FaultProvider {
		reason, message = w.because, message+" while it waited to try the model API again"
	}
	return hang("idle", reason, w.Quiet(now), message)
}

// Starting looks at an agent that has written nothing yet, though its protocol begins with a
// word of its own. Where many start at once they get little of the processors and of the
// disk, so one that still works is given as much processor time as it may take by the clock;
// idle_timeout bounds that.
func (w *Watchdog) Starting(now time.Time) (*event.Hang, time.Duration) {
	if !w.greets || w.spoke {
		return nil, math.MaxInt64
	}
	limit := w.limits.Start
	every := max(limit/4, time.Millisecond)
	if due := every - now.Sub(w.measured); due > 0 {
		return nil, due
	}
	did := activity{}
	did.cpu, did.io = w.processes.Activity()
	working := works(w.did, did, now.Sub(w.measured))
	silent := now.Sub(w.began)
	w.measured, w.did = now, did
	switch {
	case silent < limit:
		return nil, min(every, limit-silent)
	case working && did.cpu < limit:
		return nil, every
	}
	return hang("start", jobs.StartLimit, silent, fmt.Sprintf("it wrote nothing in the %v after its start, with %v of processor time and %v read or written",
		silent.Round(time.Millisecond), did.cpu, jobs.Bytes(did.io))), 0
}

// An activity is the work of an agent's processes since its start.
type activity struct {
	cpu time.Duration
	io  int64 // bytes
}

// idleIO is how many bytes a second a program may read and write that only
// waits: what wakes it up is some bytes long.
const idleIO = 4 << 10

// works reports whether an agent did in this span more than a program does that
// only waits: a hundredth of a processor, or idleIO. The sums fall where a process
// ends that its parent never waits for, which is a change, too.
func works(before, after activity, span time.Duration) bool {
	cpu, io := after.cpu-before.cpu, after.io-before.io
	return cpu < 0 || cpu >= max(span/100, 10*time.Millisecond) ||
		io < 0 || float64(io) >= max(idleIO, idleIO*span.Seconds())
}

// Suspended looks at the agent's processes now and then while it is silent.
func (w *Watchdog) Suspended(now time.Time, quiet time.Duration) (*event.Hang, time.Duration) {
	limit := w.limits.Halt
	every := max(limit/4, 50*time.Millisecond)
	if due := max(every-quiet, every-now.Sub(w.looked)); due > 0 {
		return nil, due
	}
	w.looked = now
	switch n := w.processes.Halted(); {
	case n == 0:
		w.halted = time.Time{}
	case w.halted.IsZero():
		w.halted = now
	case now.Sub(w.halted) >= limit:
		return hang("stopped", jobs.AgentHalted, now.Sub(w.halted),
			fmt.Sprintf("%d of its processes were stopped by a signal for %v, and it was silent", n, limit)), 0
	}
	return nil, every
}
