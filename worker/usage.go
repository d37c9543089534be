package worker

import (
	"cmp"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
)

// A usage is what the runs of an agent used together.
type usage struct {
	meter *gate.Session // what went through the gate; nil: there is none
	total agent.Total   // what the agent itself told, of all runs
}

// add adds what one run of the agent told.
func (u *usage) add(run agent.Total) {
	u.total.Usage = u.total.Usage.Add(run.Usage)
	u.total.CostUSD = jobs.AddUSD(u.total.CostUSD, run.CostUSD)
}

// heard adds what one run told of the job's work, and with which model that was done.
func (u *usage) heard(run agent.Total) {
	u.add(run)
	u.total.Model = run.Model
}

// spent is what the attempt has used, with a run that is not over: as the gate
// counted it, or as the agent reports it where nothing went through the gate.
// What that cost only the agent knows, unless the gate has prices.
func (u *usage) spent(run agent.Total) (jobs.Spent, string) {
	s := jobs.Spent{Usage: u.total.Usage.Add(run.Usage), CostUSD: jobs.AddUSD(u.total.CostUSD, run.CostUSD)}
	model := cmp.Or(run.Model, u.total.Model)
	if u.meter != nil {
		if m := u.meter.Meter(); m.Calls > 0 {
			s.Usage, model = m.Usage, m.Model
			s.CostUSD = cmp.Or(s.CostUSD, m.CostUSD)
		}
	}
	return s, model
}

// measure makes the meter of what goes through the gate, where there is none
// yet: the budget is for all runs of the agent together.
func (r *agentRuns) measure() {
	if r.used.meter != nil {
		return
	}
	r.used.meter = gate.NewSession(r.of.rec.ID, gate.Key(r.of.tokens.model), gate.Limits{Tokens: r.plan.Job.Budget.Tokens, USD: r.plan.Job.Budget.USD})
	r.used.meter.Refused = func(v gate.Violation) {
		r.of.refused.Note(policy.KindModel, r.of.clean(cmp.Or(strings.TrimSpace(v.Method+" "+v.Path), "model API")), r.of.clean(v.What))
	}
}
