package agentrun

import (
	"context"
	"io"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/terminals"
)

// ownTerminal answers a program of the jail, which says neither who it is nor
// which attempt.
func (r *Run) ownTerminal(ctx context.Context, t terminal.Request) (terminal.Answer, error) {
	if !r.cfg.Job.Agent.Terminals {
		return terminal.Answer{}, inside.Refuse("forbidden", "the job gives its agent no terminals: it needs agent.terminals, or --terminals")
	}
	t.By, t.Attempt = terminals.Own, r.cfg.Record.Attempt
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
func (r *Run) terminalConfig() terminals.Config {
	return terminals.Config{
		Attempt: r.cfg.Record.Attempt, First: r.cfg.Terminals + 1,
		Start: r.process.Terminal, Prove: r.tell, Output: r.output,
		Keep: func(ctx context.Context, name string, content io.Reader) error {
			file, err := r.cfg.Outcome.Keep(ctx, name, content)
			return r.attach(ctx, file, err)
		},
		Clean: func(w io.Writer) io.WriteCloser { return r.cfg.Secrets.Writer(w) },
	}
}

// output records what is not the agent's own, in its turn.
func (r *Run) output(events ...event.Event) {
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	for i := range events {
		events[i].Turn = turn
	}
	r.cfg.Events.PutOutput(events...)
}

// Terminal answers a request about the terminals of the agent's jail. It reports whether the
// request is for this attempt.
func (r *Run) Terminal(ctx context.Context, t terminal.Request) (terminal.Answer, bool) {
	return r.terminals.Answer(ctx, t)
}
