package agentrun

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/inside"
)

// serveInside answers the programs of the agent's jail until ctx ends. A jail that nothing
// leads out of has no listener for that.
func (r *Run) serveInside(ctx context.Context, l net.Listener) error {
	if l == nil {
		return nil
	}
	return r.cfg.Inside.Serve(ctx, l, r.insideHandlers())
}

// insideHandlers carry out what the programs of the agent's jail may have done.
func (r *Run) insideHandlers() inside.Handlers {
	return inside.Handlers{
		Milestone: func(ctx context.Context, text string) error {
			return r.tell(ctx, event.New(event.Milestone{Text: text}))
		},
		Artifact: r.sent,
		Result:   r.setResult,
		Ask:      r.inquire,
		Terminal: r.ownTerminal,
		Shut:     func(why string) { r.cfg.Events.Put(event.Make(event.Notice{Text: why})) },
	}
}

// tell appends what the agent has done to the log, where an attempt that has
// lost its lease cannot write.
func (r *Run) tell(ctx context.Context, e jobs.Event) error {
	ctx, cancel := context.WithTimeout(ctx, AcceptLimit)
	defer cancel()
	r.mu.Lock()
	e.Turn = r.turn
	r.pulse.last = time.Now() // it does something
	r.mu.Unlock()
	err := r.cfg.Append(ctx, e)
	if errors.Is(err, jobs.ErrFenced) {
		r.cfg.End(err)
	}
	return err
}

// sent stores a file that a program of the agent sends, under a name of the
// agent's own.
func (r *Run) sent(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error) {
	file, err := r.cfg.Outcome.Send(ctx, name, content)
	if large, ok := errors.AsType[*artifact.TooLargeError](err); ok {
		return jobs.Artifact{}, inside.Refuse("too_large", "%v", large)
	}
	return file, r.attach(ctx, file, err)
}

// attach lists one of the attempt's files among its artifacts, if it was stored and
// the log can be told.
func (r *Run) attach(ctx context.Context, file jobs.Artifact, err error) error {
	if err == nil {
		err = r.tell(ctx, event.New(event.ArtifactStored(file)))
	}
	if err == nil {
		r.cfg.Outcome.Attach(file)
	}
	return err
}

// setResult takes the job's result, if it is what the job wants.
func (r *Run) setResult(ctx context.Context, value json.RawMessage) error {
	if len(r.cfg.Job.ResultSchema) > 0 {
		if err := r.cfg.Typed(r.cfg.Job.ResultSchema, value); err != nil {
			return inside.Refuse("invalid", "it does not fit the job's result_schema: %v", err)
		}
	}
	e := r.cfg.Secrets.Event(event.New(event.ResultSet{Value: value}))
	if err := r.tell(ctx, e); err != nil {
		return err
	}
	r.cfg.Outcome.SetValue(event.As[event.ResultSet](e).Value) // as the log has it
	return nil
}

// A pending question is one of a program in the jail.
type pending struct {
	question control.Question
	answer   chan inside.Answer // has room for one
	bounded  bool               // who asks waits for so long, and no longer
	taken    bool               // an answer is being stored
}

// inquire asks whoever follows the session, and waits for an answer.
func (r *Run) inquire(ctx context.Context, a inside.Ask) (inside.Answer, error) {
	if answer, ok := r.cfg.Recall(a.Question); ok {
		return answer, nil
	}
	r.cfg.Events.Pace() // a program may ask without end
	id, answer := jobs.NewID(), make(chan inside.Answer, 1)
	if err := r.open(id, pending{question: a.Question, answer: answer, bounded: a.Timeout > 0}); err != nil {
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
		r.giveUp(id, "expired")
	case <-ctx.Done(): // who asked has gone, or the agent has
		r.giveUp(id, "withdrawn")
	}
	return <-answer, nil // somebody may have answered meanwhile
}

func (r *Run) open(id string, p pending) error {
	questions, err := json.Marshal([]control.Question{p.question})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving != "" || r.found != nil || r.parked != nil {
		return inside.Refuse("over", "the agent is being ended")
	}
	e := event.Make(event.AskOpened{Ask: id, Type: "question", Questions: questions})
	e.Turn = r.turn
	r.cfg.Events.Put(e)
	r.asked([]event.Event{e})
	if r.questions == nil {
		r.questions = map[string]pending{}
	}
	r.questions[id] = p
	r.pulse.last = time.Now()
	return nil
}

// giveUp closes a question that nobody has answered, and tells the program that asked.
func (r *Run) giveUp(id, how string) {
	p, answer, open := r.withdraw(id, how)
	if open {
		p.answer <- answer
	}
}

// withdraw takes a question off the list of open ones, if it is one and no answer is being
// stored, and returns what its program is told. A question of a session that is being
// parked stays open in the log: the program ended because of that.
func (r *Run) withdraw(id, how string) (p pending, answer inside.Answer, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, open = r.questions[id]
	if !open || p.taken {
		return p, answer, false
	}
	delete(r.questions, id)
	if r.parked != nil {
		return p, inside.Answer{How: "withdrawn"}, true
	}
	e := r.closed(id, how)
	r.cfg.Events.Put(e)
	r.asked([]event.Event{e})
	return p, inside.Unanswered, true
}

// expire closes a question of the jail's programs that was open for too long,
// for who holds the lock and changes the list of questions. It reports whether
// it was one of theirs.
func (r *Run) expire(id string) bool {
	p, ok := r.questions[id]
	if !ok || p.taken {
		return ok
	}
	how, answer := "expired", inside.Unanswered
	if r.cfg.Job.Ask.Default != "" {
		how, answer = "default", inside.Answer{How: "answered", Text: r.cfg.Job.Ask.Default}
	}
	r.cfg.Events.Put(r.closed(id, how))
	delete(r.questions, id)
	p.answer <- answer
	return true
}

func (r *Run) closed(id, how string) event.Event {
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Turn = r.turn
	return e
}

// answer finds out what an answer to a question of the jail's programs comes to.
// Ours says that it is one of theirs.
func (r *Run) answer(c control.Message) (_ deed, ours bool, err error) {
	id := c.Ask
	if id == "" && len(r.questions) > 0 {
		if id, err = c.Meant(r.openAsks()); err != nil {
			return deed{}, true, err
		}
	}
	p, ok := r.questions[id]
	if !ok {
		return deed{}, false, nil
	}
	how, text := "declined", c.Text
	if !c.Deny {
		answers, err := c.Fit([]control.Question{p.question})
		if err != nil {
			return deed{}, true, err
		}
		how, text = "answered", answers[p.question.Question]
	}
	p.taken = true
	r.questions[id] = p
	reply := func(a inside.Answer) func() {
		return func() {
			delete(r.questions, id)
			p.answer <- a
		}
	}
	return deed{events: []event.Event{r.closed(id, how)}, then: reply(inside.Answer{How: how, Text: text}), undo: reply(inside.Unanswered)}, true, nil
}
