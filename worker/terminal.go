package worker

import (
	"context"
	"io"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker/terminals"
)

// lookable reports whether the agent's jail can have terminals.
func (a *attempt) lookable() bool {
	return a.cfg.Policy.Attach != "deny" && a.result.Backend != "seatbelt"
}

// terminal answers a request about the terminals of the agent's jail.
func (a *attempt) terminal(ctx context.Context, r terminal.Request) (terminal.Answer, bool) {
	if a.cfg.Policy.Attach == "deny" {
		return terminal.Answer{Error: control.Refuse(control.Cannot, "the worker's policy allows no terminals in its jails")}, true
	}
	run := a.floor.get()
	if run == nil {
		return terminal.Answer{Error: control.Refuse(control.NotReady, "no agent runs now: its worker prepares one, runs commands, or collects the result")}, true
	}
	return run.terminals.Answer(ctx, r)
}

// terminalConfig joins the terminals to the jail and to the session's log.
func (r *agentRun) terminalConfig() terminals.Config {
	return terminals.Config{
		Attempt: r.rec.Attempt, First: r.attempt.terminals + 1,
		Start: r.process.Terminal, Prove: r.tell, Output: r.output,
		Keep: func(ctx context.Context, name string, content io.Reader) error {
			_, err := r.attach(ctx, name, content)
			return err
		},
		Clean: func(w io.Writer) io.WriteCloser { return r.secrets.Writer(w) },
	}
}

// output records what is not the agent's own, in its turn.
func (r *agentRun) output(events ...jobs.Event) {
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	for i := range events {
		events[i].Turn = turn
	}
	r.events.putOutput(events...)
}
