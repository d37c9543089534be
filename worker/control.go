package worker

import (
	"context"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// A floor is had by the run of the agent that takes control messages now.
type floor struct {
	mu  sync.Mutex
	run *agentrun.Run // nil: no agent runs
}

func (f *floor) set(run *agentrun.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = run
}

func (f *floor) get() *agentrun.Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.run
}

// listen answers the session's control messages until the function that it
// returns is called. What earlier attempts have accepted counts: it is not
// taken again, and what their agents were told this one's is told, too.
func (a *attempt) listen(ctx context.Context) (stop func(), err error) {
	if err := a.conversation.Read(ctx, a.cfg.Log); err != nil {
		return nil, err
	}
	stop, err = a.cfg.Log.Listen(a.rec.Session, a.conversation.Questions.Receipts(), func(c control.Message) (control.Receipt, error) { return a.control(ctx, c) })
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "listen to the session", err)
	}
	return stop, nil
}

// control takes one message. When it returns without an error the message is
// in the session's log, where no worker can write that has lost the job.
func (a *attempt) control(ctx context.Context, c control.Message) (control.Receipt, error) {
	run := a.floor.get()
	if run == nil || run.Over() {
		return control.Receipt{}, control.Refuse(control.NotReady, "no agent runs now: its worker prepares one, runs commands, or collects the result")
	}
	images, err := a.storeImages(ctx, run, c)
	if err != nil {
		return control.Receipt{}, err
	}
	if err := run.Control(ctx, c, images); err != nil {
		return control.Receipt{}, err
	}
	a.log.Info("control message", "verb", c.Verb, "input", c.ID)
	return control.Receipt{ID: c.ID, Verb: c.Verb, Job: a.rec.ID, Session: a.rec.Session, Attempt: a.rec.Attempt, State: control.Accepted}, nil
}
