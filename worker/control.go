package worker

import (
	"context"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// An inbox takes what people send to the session, for the run of the agent.
type inbox struct {
	of *claimed

	mu  sync.Mutex
	run *agentrun.Run // takes messages now; nil: no agent runs
}

func (b *inbox) set(run *agentrun.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run = run
}

func (b *inbox) get() *agentrun.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.run
}

// listen answers the session's control messages until the function that it
// returns is called. What earlier attempts have accepted counts: it is not
// taken again, and the prompts of their agents are prompts of this one's, too.
func (b *inbox) listen(ctx context.Context) (stop func(), err error) {
	if err := b.of.conversation.Read(ctx, b.of.cfg.Log); err != nil {
		return nil, err
	}
	stop, err = b.of.cfg.Log.Listen(b.of.rec.Session, b.of.conversation.Questions.Receipts(), func(c control.Message) (control.Receipt, error) { return b.control(ctx, c) })
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "listen to the session", err)
	}
	return stop, nil
}

// control takes one message. When it returns without an error the message is
// in the session's log, where no worker can write that has lost the job.
func (b *inbox) control(ctx context.Context, c control.Message) (control.Receipt, error) {
	run := b.get()
	if run == nil || run.Over() {
		return control.Receipt{}, control.Refuse(control.NotReady, "no agent runs now: its worker prepares one, runs commands, or collects the result")
	}
	images, err := b.storeImages(ctx, run, c)
	if err != nil {
		return control.Receipt{}, err
	}
	if err := run.Control(ctx, c, images); err != nil {
		return control.Receipt{}, err
	}
	b.of.log.Info("control message", "verb", c.Verb, "input", c.ID)
	return control.Receipt{ID: c.ID, Verb: c.Verb, Job: b.of.rec.ID, Session: b.of.rec.Session, Attempt: b.of.rec.Attempt, State: control.Accepted}, nil
}
