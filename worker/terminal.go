package worker

import (
	"context"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/terminal"
)

// terminal answers a request about the terminals of the agent's jail.
func (b *inbox) terminal(ctx context.Context, r terminal.Request) (terminal.Answer, bool) {
	if b.of.cfg.Policy.Attach == "deny" {
		return terminal.Answer{Error: control.Refuse(control.Cannot, "the worker's policy allows no terminals in its jails")}, true
	}
	run := b.get()
	if run == nil {
		return terminal.Answer{Error: control.Refuse(control.NotReady, "no agent runs now: its worker prepares one, runs commands, or collects the result")}, true
	}
	return run.Terminal(ctx, r)
}
