package worker

import (
	"cmp"
	"strings"

	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/gate"
)

// measure makes the meter of what goes through the gate, where there is none
// yet: the budget is for all runs of the agent together.
func (a *attempt) measure() {
	if a.talk.meter != nil {
		return
	}
	a.talk.meter = gate.NewSession(a.rec.ID, gate.Key(a.tokens.model), gate.Limits{Tokens: a.job.Budget.Tokens, USD: a.job.Budget.USD})
	a.talk.meter.Refused = func(v gate.Violation) {
		a.refused.Note(policy.KindModel, a.redacted(cmp.Or(strings.TrimSpace(v.Method+" "+v.Path), "model API")), a.redacted(v.What))
	}
}

// redacted is what a program inside has chosen, without secrets.
func (a *attempt) redacted(s string) string { return string(a.secrets.Text([]byte(s))) }
