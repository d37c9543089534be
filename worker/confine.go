package worker

import (
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/preparation"
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
func (a *attempt) newPreparation() preparation.Preparation {
	return preparation.New(preparation.Config{
		Job: a.job, Record: a.rec, Epoch: a.claim.Epoch(), Name: a.name(),
		Confine: a.cfg.confinement(), Strategy: a.cfg.Workspace, Spaces: a.cfg.Spaces, Agents: a.cfg.Agents, Signers: a.cfg.Signers,
		Backend: a.cfg.Backend, Diagnosed: a.cfg.diagnosed, Salvages: a.salvages, Conversation: a.conversation,
		Refusals: a.refused, Result: a.out.Result, Took: a.times.took, Tell: a.events.Put,
	})
}

// confine returns the jail of the attempt's programs.
func (a *attempt) confine(plan preparation.Plan, space *workspace.Workspace) (confine.Jail, error) {
	keepHome := a.job.CheckRounds > 0 && plan.Adapter.About().Resume || a.conversation.Continues()
	return confine.New(a.cfg.confinement(), confine.Request{
		Job: a.job, Label: JailLabel(a.name(), a.cfg.Pool), Backend: plan.Backend, Space: space, KeepHome: keepHome,
		Inside: a.inside.URL, Token: a.tokens.network, Refused: a.refused.Host,
	})
}
