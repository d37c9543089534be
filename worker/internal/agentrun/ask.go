package agentrun

import (
	"context"
	"encoding/json"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/inside"
)

// ask asks the users who follow the session for a program in the jail, and waits for an answer.
func (r *Run) ask(ctx context.Context, a inside.Ask) (inside.Answer, error) {
	if answer, ok := r.cfg.Recall(a.Question); ok {
		return answer, nil
	}
	r.cfg.Events.Pace() // a program may ask without end
	id, answer := jobs.NewID(), make(chan inside.Answer, 1)
	if err := r.state.openQuestion(id, programQuestion{question: a.Question, answer: answer, bounded: a.Timeout > 0}); err != nil {
		return inside.Answer{}, err
	}
	var late <-chan time.Time
	if a.Timeout > 0 {
		timer := time.NewTimer(time.Duration(a.Timeout))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case got := <-answer:
		return got, nil
	case <-late:
		r.state.withdraw(id, "expired")
	case <-ctx.Done(): // the program has gone, or the agent has
		r.state.withdraw(id, "withdrawn")
	}
	return <-answer, nil // a user may have answered meanwhile
}

// openQuestion tells the session what a program asks.
func (s *state) openQuestion(id string, p programQuestion) error {
	list, err := json.Marshal([]control.Question{p.question})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending() || s.parked != nil {
		return inside.Refuse("over", "the agent is being ended")
	}
	e := s.turns.stamp(event.Make(event.AskOpened{Ask: id, Type: "question", Questions: list}))
	s.cfg.Events.Put(e)
	s.questions.note([]event.Event{e})
	s.questions.open.add(id, p)
	s.watchdog.Touch(time.Now())
	return nil
}

// withdraw closes a question that has no answer, unless one is being stored, and tells the
// program that asked. A question of a session that is being parked stays open in the log: the
// program ended because of that.
func (s *state) withdraw(id, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.questions.open.waiting(id):
	case s.parked != nil:
		s.questions.open.settle(id, inside.Answer{How: "withdrawn"})
	default:
		s.questions.closeProgram(id, how, inside.Unanswered)
	}
}
