package agentrun

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-run/penstock/worker/internal/conversation"
)

// A session is parked in these steps, each of which may be the last one:
//
//	the agent asks, and nothing happens ─▶ its capsule is stored, while it waits
//	─▶ it is ended ─▶ job.waiting ─▶ the record says so, and the slot is free

// A Parking is how an attempt ends whose questions are open.
type Parking struct {
	Asks     []string
	Question string // the first of them, for people
	Until    time.Time
}

// lookAtQuestions gives up the questions that have had no answer in time, and has the
// session parked if it does nothing but wait. It returns when to look again.
func (s *state) lookAtQuestions(now time.Time) time.Duration {
	if len(s.questions.open.all) == 0 {
		return math.MaxInt64
	}
	limit := s.cfg.Job.Ask.Limit()
	left := limit - now.Sub(s.questions.open.oldest())
	if left <= 0 {
		s.questions.lapse(now, limit)
		s.watchdog.Touch(now) // it can go on now
		return limit
	}
	if !s.onlyAsks() || s.offered.Equal(s.watchdog.Last()) {
		return left
	}
	if grace := s.cfg.Job.Ask.Grace() - s.watchdog.Quiet(now); grace > 0 {
		return min(left, grace)
	}
	s.offered = s.watchdog.Last()
	at := s.position()
	at.Since = s.offered
	s.capsules.offer(at)
	return left
}

// onlyAsks reports whether the agent does nothing but wait for answers. A tool
// that it waits for may be the one that asks.
func (s *state) onlyAsks() bool {
	done := !s.watchdog.InputOpen() && s.cfg.KeepStdin
	if !s.cfg.Parkable || s.taking > 0 || s.work.attended || s.ending() || done {
		return false
	}
	waiting := 0
	for _, q := range s.questions.open.all {
		p, program := s.questions.open.programs[q.Ask.Ask]
		if !q.Waits() || p.bounded {
			return false
		}
		if program || s.work.tools[q.Call] {
			waiting++
		}
	}
	return s.work.count() <= waiting
}

// park decides that the session is parked, unless something has happened
// since that was asked for. Stored says that there is a capsule of then.
func (s *state) park(at conversation.Position, stored, attended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work.attended = attended
	if !stored && s.cfg.Conversation.Continues() || !s.watchdog.Last().Equal(at.Since) || !s.onlyAsks() || !slices.Equal(s.questions.open.ids(), at.Asks) {
		return
	}
	s.parked = &Parking{Asks: at.Asks, Question: s.questions.open.all[0].words(), Until: s.questions.open.oldest().Add(s.cfg.Job.Ask.Limit())}
	s.news.set()
}
