package worker

import (
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/preparation"
	"github.com/penstock-run/penstock/worker/poolmark"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Path is where programs are looked for inside, unless a policy or a job says
// otherwise.
const Path = confine.Path

// InsideVariable has, in the agent's jail, the URL of its worker.
const InsideVariable = confine.InsideVariable

// Limits are those of a jail that a job asks for.
func Limits(asked jobs.Limits) sandbox.Limits { return confine.Limits(asked) }

// Budget is that of the way out of a jail that a job asks for.
func Budget(asked jobs.Limits) policy.Budget { return confine.Budget(asked) }

// confinement is what the worker brings to the jails of all jobs.
func (c Config) confinement() confine.Config {
	return confine.Config{
		Policy: c.Policy, Where: c.Where, Mounts: c.Mounts, Secret: c.Secret, DiskLimit: c.DiskLimit,
		Program: c.Program, Network: c.Network, Grace: c.Hangs.Step,
	}
}

// newPreparation returns the attempt's preparation, which has made nothing yet.
func (c *claimed) newPreparation() *preparation.Preparation {
	return preparation.New(preparation.Config{
		Job: c.job, Record: c.rec, Epoch: c.claim.Epoch(), Name: c.name(),
		Confine: c.cfg.confinement(), Strategy: c.cfg.Workspace, Spaces: c.cfg.Spaces, Agents: c.cfg.Agents, Signers: c.cfg.Signers,
		Backend: c.cfg.Backend, Diagnosed: c.cfg.diagnosed, Salvages: c.salvages, Conversation: c.conversation,
		Refusals: c.refused, Result: c.out.Result, Took: c.times.took, Tell: c.events.Put,
	})
}

// confine returns the jail of the attempt's programs.
func (c *claimed) confine(plan *preparation.Plan, space *workspace.Workspace) (*confine.Jail, error) {
	keepHome := plan.Job.CheckRounds > 0 && plan.Adapter.About().Resume || c.conversation.Continues()
	return confine.New(c.cfg.confinement(), confine.Request{
		Job: plan.Job, Label: poolmark.Label(c.name(), c.cfg.Pool), Backend: plan.Backend, Space: space, KeepHome: keepHome,
		Trace: c.rec.Span(c.rec.Attempt), Inside: c.inside.URL, Token: c.tokens.network, Refused: c.refused.Host,
	})
}
