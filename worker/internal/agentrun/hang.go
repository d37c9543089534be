package agentrun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
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

// minLine is the least size for which a line counts.
const minLine = 1 << 10

// A pulse is what shows that an agent lives.
type pulse struct {
	began, last time.Time // its start, and its last line
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

// progress are the events after which it is no longer the same call that the
// agent tries again.
var progress = []jobs.Kind{
	jobs.TurnStarted, jobs.TurnEnded, jobs.Message, jobs.MessageDelta, jobs.Thought, jobs.ThoughtDelta,
	jobs.ToolStarted, jobs.ToolDelta, jobs.ToolOutput, jobs.ToolEnded,
}

// beat records the meaning of a line.
func (p *pulse) beat(now time.Time, length int, events []event.Event) {
	p.last, p.spoke, p.halted = now, true, time.Time{}
	p.written += int64(max(0, minLine-length))
	for _, e := range events {
		if retry, ok := e.Payload.(event.Retry); ok {
			p.retries++
			p.retried = retry
		} else if slices.Contains(progress, e.Kind) {
			p.retries = 0
		}
	}
}

// hang makes the finding of a limit.
func hang(what string, reason jobs.Reason, after time.Duration, message string) *event.Hang {
	return &event.Hang{What: what, Reason: reason, Seconds: after.Seconds(), Message: message}
}

// watch looks after the agent until it has ended, and ends it when it hangs.
func (r *Run) watch() {
	for {
		found, next := r.look(time.Now())
		switch {
		case found != nil:
			r.descend(found)
			return
		case r.parks():
			_ = r.process.Stop(context.Background()) // as in steps; its reaction to that does not count
			return
		case r.told():
			r.leave()
			return
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-r.news:
		case <-r.process.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// look says whether the agent hangs, or when to check again. It closes the input of an
// agent that only waits for more.
func (r *Run) look(now time.Time) (*event.Hang, time.Duration) {
	attended := r.terminals.InUse()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work.attended = attended
	p, h, idle := &r.pulse, r.cfg.Hangs, time.Duration(r.cfg.Job.IdleTimeout)
	if r.parked != nil {
		return nil, 0
	}
	if r.paced > 0 {
		p.last = now
	}
	quiet := now.Sub(p.last)
	if found := r.beyond(now); found != nil {
		return found, 0
	}
	if !p.closed.IsZero() && r.state != agent.Working {
		over := now.Sub(p.closed)
		if over >= h.Exit {
			return hang("exit", "", over, "its last turn is over, and it did not exit"), 0
		}
		return nil, h.Exit - over
	}
	next := idle - quiet
	if next <= 0 {
		switch {
		case len(r.asks) > 0:
			r.lapse(now, 0)
			p.last = now // it can continue now
			return nil, idle
		case r.state != agent.Working && p.closed.IsZero():
			// Its turn is over, and it waits for a background process, or for a prompt
			// that does not come.
			r.closeStdin()
			return nil, h.Exit
		}
		return r.idled(quiet), 0
	}
	if r.cfg.Greets && !p.spoke {
		found, again := r.starting(now)
		if found != nil {
			return found, 0
		}
		next = min(next, again)
	}
	next = min(next, r.lookAtAsks(now, quiet))
	found, again := r.halted(now, quiet)
	return found, min(next, again)
}

// starting looks at an agent that has written nothing yet. Where many start at
// once they get little of the processors and of the disk, so one that still works
// is given as much processor time as it may take by the clock; idle_timeout bounds
// that.
func (r *Run) starting(now time.Time) (*event.Hang, time.Duration) {
	p, limit := &r.pulse, r.cfg.Hangs.Start
	every := max(limit/4, time.Millisecond)
	if due := every - now.Sub(p.measured); due > 0 {
		return nil, due
	}
	did := activity{}
	did.cpu, did.io = r.process.Activity()
	working := works(p.did, did, now.Sub(p.measured))
	silent := now.Sub(p.began)
	p.measured, p.did = now, did
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

// idled is the verdict on silence. An agent that the model API told to retry in hours
// waits silently, and the API is the cause.
func (r *Run) idled(quiet time.Duration) *event.Hang {
	reason, message := jobs.IdleLimit, fmt.Sprintf("it was silent for %v", time.Duration(r.cfg.Job.IdleTimeout))
	if why := r.pulse.because; jobs.Reasons[why].Fault == jobs.FaultProvider {
		reason, message = why, message+" while it waited to try the model API again"
	}
	return hang("idle", reason, quiet, message)
}

// beyond finds what needs no clock: too much output, too many retries.
func (r *Run) beyond(now time.Time) *event.Hang {
	p, h := &r.pulse, r.cfg.Hangs
	switch {
	case p.written > h.Output:
		return hang("output", jobs.OutputLimit, now.Sub(p.began), fmt.Sprintf("it wrote more than %v", jobs.Bytes(h.Output)))
	case p.retries > h.Retries:
		return hang("retry", jobs.RetryLimit, now.Sub(p.began), fmt.Sprintf("it tried the model API %d times and got nowhere (%s, status %d)",
			p.retries, cmp.Or(p.retried.Class, "no class"), p.retried.HTTP))
	}
	return nil
}

// told reports whether a user has stopped the agent.
func (r *Run) told() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving != ""
}

// halted looks at the agent's processes now and then while it is silent.
func (r *Run) halted(now time.Time, quiet time.Duration) (*event.Hang, time.Duration) {
	p, limit := &r.pulse, r.cfg.Hangs.Halt
	every := max(limit/4, 50*time.Millisecond)
	if due := max(every-quiet, every-now.Sub(p.looked)); due > 0 {
		return nil, due
	}
	p.looked = now
	switch n := r.process.Halted(); {
	case n == 0:
		p.halted = time.Time{}
	case p.halted.IsZero():
		p.halted = now
	case now.Sub(p.halted) >= limit:
		return hang("stopped", jobs.AgentHalted, now.Sub(p.halted),
			fmt.Sprintf("%d of its processes were stopped by a signal for %v, and it was silent", n, limit)), 0
	}
	return nil, every
}

// descend ends an agent that hangs: it interrupts the turn, closes the input, asks the
// process to end, and kills everything in the jail. Each step has its time. The
// sequence does not depend on the agent.
func (r *Run) descend(found *event.Hang) {
	r.cfg.Events.Put(event.Make(event.HangDetected(*found)))
	r.cfg.Log.Warn("the agent hangs", "what", found.What, "message", found.Message)
	r.steps(func(step string) { r.note(found, step) })
}

// steps takes each step until the agent has ended, and reports it before.
func (r *Run) steps(tell func(step string)) {
	for _, step := range []struct {
		name string
		take func() bool
	}{{"interrupt", r.interrupt}, {"input", r.hangUp}} {
		tell(step.name)
		if step.take() && r.gone(r.cfg.Hangs.Step) {
			return
		}
	}
	tell("term")
	_ = r.process.Stop(context.Background()) // bounded by the jail's grace; Wait reports what failed
}

// note says which step may have ended the agent.
func (r *Run) note(found *event.Hang, step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found, r.step = found, step
	if r.foundAt.IsZero() {
		r.foundAt = time.Now()
	}
}

// interrupt asks the agent to end its turn, where it can be asked.
func (r *Run) interrupt() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	speaker, ok := r.decoder.(agent.Speaker)
	return ok && r.cfg.KeepStdin && r.state != agent.Idle && r.in.put(speaker.Interrupt()...)
}

// hangUp closes the agent's input at once.
func (r *Run) hangUp() bool {
	r.mu.Lock()
	open := r.cfg.KeepStdin && r.pulse.closed.IsZero()
	r.pulse.closed = time.Now()
	r.mu.Unlock()
	r.in.cut()
	return open
}

// gone waits for the agent's end.
func (r *Run) gone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.process.Done():
		return true
	case <-timer.C:
		return false
	}
}

// hung reports how an agent that hung has ended, and returns the reason for the end of
// the attempt, if that is it. All processes of the agent have ended: Wait waits for
// that.
func (r *Run) hung(killed bool) jobs.Ended {
	if r.found == nil {
		return jobs.Ended{}
	}
	end := *r.found
	end.Step, end.Seconds = r.step, time.Since(r.foundAt).Seconds()
	if end.Step == "term" && killed {
		end.Step = "kill"
	}
	r.cfg.Events.Put(event.Make(event.HangEnded(end)))
	if r.cfg.Hooks.Hung != nil {
		r.cfg.Hooks.Hung(r.cfg.Record, end.What, end.Step)
	}
	if end.Reason == "" {
		return jobs.Ended{}
	}
	return end.Reason.Ended("the agent hung: " + end.Message)
}
