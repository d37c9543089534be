package agentrun

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// watch looks after the agent until it has ended, and ends it when it hangs, is parked, or was
// stopped by a user.
func (r *Run) watch() {
	for {
		found := r.state.look(time.Now(), r.terminals.InUse())
		switch {
		case found.hang != nil:
			r.endHung(found.hang)
			return
		case found.parked:
			_ = r.process.Stop(context.Background()) // as in steps; its reaction to that does not count
			return
		case found.stopped:
			r.endStopped()
			return
		}
		timer := time.NewTimer(found.next)
		select {
		case <-timer.C:
		case <-r.state.news:
		case <-r.process.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// endHung ends an agent that hangs, and notes by which step.
func (r *Run) endHung(found *event.Hang) {
	r.cfg.Events.Put(event.Make(event.HangDetected(*found)))
	r.cfg.Log.Warn("the agent hangs", "what", found.What, "message", found.Message)
	r.shutdown().steps(func(step string) {
		r.state.mu.Lock()
		defer r.state.mu.Unlock()
		r.state.hang.note(found, step, time.Now())
	})
}

// endStopped ends an agent that a user has stopped. One that rests only has
// to hear that there is no more.
func (r *Run) endStopped() {
	r.state.mu.Lock()
	rests := r.state.phase != agent.Working && r.cfg.KeepStdin
	r.state.mu.Unlock()
	end := r.shutdown()
	if rests {
		r.hangUp()
		if end.gone(r.cfg.Hangs.Exit) {
			return
		}
	}
	end.steps(func(string) {})
}

// shutdown is the way to the agent's end.
func (r *Run) shutdown() shutdown {
	return shutdown{process: r.process, interrupt: r.interrupt, hangUp: r.hangUp, limit: r.cfg.Hangs.Step}
}

// interrupt asks the agent to end its turn, where it can be asked.
func (r *Run) interrupt() bool {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	speaker, ok := r.state.recipient.speaker()
	return ok && r.state.phase != agent.Idle && r.state.in.put(speaker.Interrupt()...)
}

// hangUp closes the agent's input at once.
func (r *Run) hangUp() bool {
	r.state.mu.Lock()
	open := r.cfg.KeepStdin && r.state.watchdog.InputOpen()
	r.state.watchdog.InputClosed(time.Now())
	r.state.mu.Unlock()
	r.state.in.cut()
	return open
}
