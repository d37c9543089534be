package agentrun

import (
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/internal/watchdog"
)

// A state is what a run knows of its agent, and decides by. Its methods wait for nothing: the
// recorder, the lease and the input take at once what they are given. What the run calls locks
// it: line, wrote, hold, look, decide, conclude, park, openQuestion and withdraw. The other
// methods need the lock.
type state struct {
	cfg       Config
	in        *input
	news      signal   // the watch has to look at once
	capsules  capsules // that are due
	recipient recipient

	mu        sync.Mutex
	watchdog  watchdog.Watchdog
	questions questions
	work      work
	turns     turns
	hang      hangEnd

	phase   agent.State
	stopped string    // who has stopped the agent; empty: it goes on
	parked  *Parking  // it is being parked
	paced   int       // readers of its output that wait for the broker
	taking  int       // control messages that are decided on and not stored yet
	offered time.Time // the last sign of life at which the session was to be parked
}

func newState(cfg Config) *state {
	s := &state{
		cfg: cfg, in: newInput(), news: newSignal(), capsules: newCapsules(),
		watchdog: watchdog.New(cfg.Hangs, time.Duration(cfg.Job.IdleTimeout), cfg.Greets),
		recipient: recipient{
			decoder: cfg.Decoder, agent: cfg.Job.Agent.Name, open: cfg.KeepStdin, interactive: cfg.Hears, kept: cfg.Conversation.Kept(),
		},
	}
	s.questions = questions{cfg: cfg, in: s.in, news: s.news, recipient: s.recipient, stamp: s.turns.stamp}
	return s
}

// ending reports whether the agent is being ended for good.
func (s *state) ending() bool { return s.stopped != "" || s.hang.found != nil }

// line takes a line of the agent's.
func (s *state) line(line agent.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.cfg.Decoder.Line(line)
	s.turns.time(read.Events, time.Now())
	if s.parked != nil {
		return // it ends where its capsule was stored
	}
	if s.watchdog.Flooded() {
		s.cfg.Events.Drop(len(read.Events)) // the flood is not kept while it is ended
	} else {
		s.cfg.Events.PutOutput(read.Events...)
	}
	s.spend(read.Events)
	s.work.note(read.Events)
	s.questions.note(read.Events)
	s.questions.decided(read.Events)
	s.questions.declineExcess()
	s.cfg.Prompts.Note(read.Events)
	if len(read.Reply) > 0 {
		s.in.put(read.Reply...)
	}
	if read.Hopeless != "" {
		s.cfg.End(verdict.Ended(read.Hopeless, "the agent tries on, but it cannot succeed: %s", jobs.Reasons[read.Hopeless].Advice))
	}
	s.watchdog.Line(time.Now(), len(line.Bytes), read)
	s.alarm()
	s.rest(read.State)
}

// wrote counts what the agent has written.
func (s *state) wrote(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchdog.Wrote(n)
	s.alarm()
}

// hold counts the readers that wait for the broker.
func (s *state) hold(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paced += by
	s.watchdog.Touch(time.Now())
}

// alarm has the watch look at once where there is something to find already.
func (s *state) alarm() {
	if s.watchdog.Excess(time.Now()) != nil {
		s.news.set()
	}
}

// spend notes how far the agent has come, and what that took: an attempt that follows on a
// dead worker's adds it up. The end of a turn is written at once.
func (s *state) spend(events []event.Event) {
	s.cfg.Lease.Spend(s.cfg.Spent(s.cfg.Decoder.Total()))
	for _, e := range events {
		s.turns.turn = e.Turn
		if e.Kind != jobs.TurnEnded {
			continue
		}
		s.cfg.Lease.Renew()
		if s.cfg.Hooks.Turn != nil {
			s.cfg.Hooks.Turn(s.cfg.Record)
		}
	}
}

// rest closes the input of an agent that is done, or could not begin. When it is done once more,
// after a turn that the end of its input began, its time to exit begins again.
func (s *state) rest(phase agent.State) {
	kept := s.cfg.Job.Agent.Interactive && !s.ending()
	rests := phase != agent.Working && s.phase == agent.Working
	s.phase = phase
	open := s.watchdog.InputOpen()
	if open && (phase == agent.Idle && !kept || phase == agent.Over) || !open && rests {
		s.closeInput()
	}
	if open && kept && rests {
		s.capsules.offer(s.position()) // the turn is over, and the agent waits for more
	}
}

// closeInput tells the agent that nothing more will be asked. From then on it
// is bounded how long it may take to exit.
func (s *state) closeInput() {
	s.in.close()
	s.watchdog.InputClosed(time.Now())
	s.news.set() // there is another time to look
}

// rests reports whether the agent has begun nothing since it was there.
func (s *state) rests(at conversation.Position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return at.Open || s.phase != agent.Working
}

// position is how far the run has come.
func (s *state) position() conversation.Position {
	return conversation.Position{
		Conversation: s.cfg.Decoder.Total().Session, Turn: s.cfg.Conversation.Turns() + s.turns.turn, Open: s.phase == agent.Working,
		Heard: s.cfg.Prompts.Heard(), Asks: s.questions.open.ids(),
	}
}

// A finding says what is to be done about an agent; next is when to look again.
type finding struct {
	hang            *event.Hang
	parked, stopped bool
	next            time.Duration
}

// look says whether the agent hangs, or is to be ended for another reason. It closes the
// input of an agent that only waits for more. Attended says that a user has a terminal in
// its jail.
func (s *state) look(now time.Time, attended bool) finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.attended = attended
	if s.parked != nil {
		return finding{parked: true}
	}
	if s.paced > 0 {
		s.watchdog.Touch(now)
	}
	hang, next := s.inspect(now)
	return finding{hang: hang, stopped: s.stopped != "", next: next}
}

func (s *state) inspect(now time.Time) (*event.Hang, time.Duration) {
	w := &s.watchdog
	if found := w.Excess(now); found != nil {
		return found, 0
	}
	if !w.InputOpen() && s.phase != agent.Working {
		return w.Exiting(now)
	}
	quiet := w.Quiet(now)
	if quiet >= time.Duration(s.cfg.Job.IdleTimeout) {
		return s.silent(now)
	}
	found, next := w.Starting(now)
	if found != nil {
		return found, 0
	}
	next = min(next, time.Duration(s.cfg.Job.IdleTimeout)-quiet, s.lookAtQuestions(now))
	found, again := w.Suspended(now, quiet)
	return found, min(next, again)
}

// silent decides about an agent that was silent for the job's idle_timeout.
func (s *state) silent(now time.Time) (*event.Hang, time.Duration) {
	w := &s.watchdog
	switch {
	case len(s.questions.open.all) > 0:
		s.questions.lapse(now, 0)
		w.Touch(now) // it can continue now
		return nil, time.Duration(s.cfg.Job.IdleTimeout)
	case s.phase != agent.Working && w.InputOpen():
		// Its turn is over, and it waits for a background process, or for a prompt
		// that does not come.
		s.closeInput()
		return nil, s.cfg.Hangs.Exit
	}
	return w.Silent(now), 0
}
