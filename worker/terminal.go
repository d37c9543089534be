package worker

import (
	"context"
	"io"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/terminals"
)

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

// ownTerminal answers a program of the jail, which says neither who it is nor
// which attempt.
func (r *agentRun) ownTerminal(ctx context.Context, t terminal.Request) (terminal.Answer, error) {
	if !r.job.Agent.Terminals {
		return terminal.Answer{}, inside.Refuse("forbidden", "the job gives its agent no terminals: it needs agent.terminals, or --terminals")
	}
	t.By, t.Attempt = terminals.Own, r.rec.Attempt
	if err := t.Validate(); err != nil {
		return terminal.Answer{}, inside.Refuse("invalid", "%v", err)
	}
	answer, ours := r.terminals.Answer(ctx, t)
	switch {
	case !ours:
		return terminal.Answer{}, inside.Refuse("over", "another attempt has the session")
	case answer.Error != nil:
		return terminal.Answer{}, inside.Refused(answer.Error)
	}
	return answer, nil
}

// terminalConfig joins the terminals to the jail and to the session's log.
func (r *agentRun) terminalConfig() terminals.Config {
	return terminals.Config{
		Attempt: r.rec.Attempt, First: r.before + 1,
		Start: r.process.Terminal, Prove: r.tell, Output: r.output,
		Keep: func(ctx context.Context, name string, content io.Reader) error {
			file, err := r.out.Keep(ctx, name, content)
			return r.attach(ctx, file, err)
		},
		Clean: func(w io.Writer) io.WriteCloser { return r.secrets.Writer(w) },
	}
}

// output records what is not the agent's own, in its turn.
func (r *agentRun) output(events ...event.Event) {
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	for i := range events {
		events[i].Turn = turn
	}
	r.events.putOutput(events...)
}
