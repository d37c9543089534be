package worker

import (
	"context"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// A currentRun is the run of the agent that takes control messages now.
type currentRun struct {
	mu  sync.Mutex
	run *agentrun.Run // nil: no agent runs
}

func (c *currentRun) set(run *agentrun.Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run = run
}

func (c *currentRun) get() *agentrun.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// listen answers the session's control messages until the function that it
// returns is called. What earlier attempts have accepted counts: it is not
// taken again, and the prompts of their agents are prompts of this one's, too.
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
	run := a.current.get()
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
