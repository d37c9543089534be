// Package preparation refuses jobs that this worker must not run, and makes the
// workspace of the others.
//
//	job ──Plan──▶ agent, backend, salvage or capsule ──Workspace──▶ directory ──Restore──▶ notice
//
// Plan makes nothing, so a refused job leaves nothing behind. The caller closes the
// workspace.
package preparation

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/seal"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/jails"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Spaces makes workspaces.
type Spaces interface {
	Prepare(ctx context.Context, req workspace.Request) (*workspace.Workspace, error)
}

// Config is the attempt to prepare, and the worker's part in it.
type Config struct {
	Job    jobs.Job
	Record jobs.Record // as the claim left it
	Epoch  uint64
	Name   string // of the attempt and its workspace

	Confine confine.Config
	// Strategy is the strategy that Spaces was opened with.
	Strategy string
	Spaces   Spaces
	Agents   *agent.Agents
	// Signers are the keys one of which must have signed the job; none: it needs no
	// signature.
	Signers []ed25519.PublicKey
	// Backend returns the jail by its name in a job.
	Backend func(name string) (sandbox.Backend, error)
	// Diagnosed adds its cause to an error of a jail, if that is known.
	Diagnosed func(error) error

	Salvages     outcome.Salvages
	Conversation *conversation.Conversation
	Refusals     *jails.Refusals
	Result       *outcome.Result
	// Took reports the time of a step, adds it to the result, and returns it in seconds.
	Took func(step string, began time.Time) float64
	// Tell records events of the session. It must not block.
	Tell func(...event.Event)
}

// A Preparation is that of one attempt.
type Preparation struct{ cfg Config }

// New returns a preparation that has made nothing yet.
func New(cfg Config) *Preparation { return &Preparation{cfg} }

// A Plan says what an attempt runs, and from where it begins.
type Plan struct {
	Job     jobs.Job // at the commit from which the attempt begins
	Adapter agent.Adapter
	Backend sandbox.Backend
	Salvage *jobs.Salvage // the changes from which it begins; nil: none
	Capsule *jobs.Capsule // the conversation that it continues; nil: it begins anew
	Why     string        // it begins anew, if that may be a surprise
}

// Plan checks the job, and chooses its agent, its backend and its beginning.
func (p *Preparation) Plan(ctx context.Context) (_ *Plan, err error) {
	plan := &Plan{Job: p.cfg.Job}
	if err := p.acceptable(); err != nil {
		return nil, err
	}
	if plan.Adapter, err = p.cfg.Agents.Get(plan.Job.Agent.Name); err != nil {
		return nil, err
	}
	// Whoever accepted the job may not have known what this worker's agent can.
	if err := p.cfg.Agents.Able(plan.Job); err != nil {
		return nil, err
	}
	if err := p.permitted(); err != nil {
		return nil, err
	}
	if plan.Backend, err = p.backend(); err != nil {
		return nil, err
	}
	return plan, p.begin(ctx, plan)
}

// acceptable refuses a job with a password in its address, and one without a signature
// that the worker trusts.
func (p *Preparation) acceptable() error {
	if jobs.HasCredentials(p.cfg.Job.Repo.URL) { // of an earlier version, or a client that asked no dispatcher
		return verdict.Ended(jobs.InvalidJob, "the repository's address has a password or a token in it: submit the job without, and give it to this worker's git (docs/how-to/private-repositories.md)")
	}
	if len(p.cfg.Signers) == 0 {
		return nil
	}
	err := seal.Verify(p.cfg.Job, p.cfg.Record, p.cfg.Signers)
	if unsigned, ok := errors.AsType[*seal.UnsignedError](err); ok {
		return verdict.Ended(jobs.Unsigned, "%s", unsigned.Error())
	}
	return err
}

// permitted asks the worker's policy, and reports together everything that it does not
// permit.
func (p *Preparation) permitted() error {
	job := p.cfg.Job
	strategy := p.cfg.Strategy // "" if it depends on what the host can do
	if job.Isolation == jobs.IsolationNone || strategy == string(workspace.Auto) {
		strategy = ""
	}
	if strategy == string(workspace.Hook) && job.Deliver.OnBranch() {
		return verdict.Ended(jobs.InvalidJob, "this worker's workspaces are not of git, so there is no branch to deliver; use deliver mode patch")
	}
	leaving := "" // how the job's result leaves the store
	if job.Deliver.OnBranch() {
		leaving = job.Deliver.Mode
	}
	return p.cfg.Refusals.Deny(p.cfg.Confine.Permits(job, strategy, leaving))
}

// backend returns the jail that the job asks for.
func (p *Preparation) backend() (sandbox.Backend, error) {
	name := p.cfg.Job.Sandbox.Backend
	if p.cfg.Job.Isolation == jobs.IsolationContainer {
		name = "oci" // the only one whose jails have a root from an image
	}
	backend, err := p.cfg.Backend(name)
	if err != nil {
		return nil, verdict.Failed(jobs.SandboxMissing, "choose a jail", p.cfg.Diagnosed(err))
	}
	p.cfg.Result.SetBackend(backend.Name())
	// What the worker prefers may be something else than the policy permits.
	return backend, p.cfg.Refusals.Deny(p.cfg.Confine.Policy.Permits(jailpolicy.Request{Backend: backend.Name()}))
}

// begin adds the beginning to a plan: a capsule, with what was changed in the workspace
// by then, or a salvage, if the job or its retry asks for that.
func (p *Preparation) begin(ctx context.Context, plan *Plan) (err error) {
	plan.Capsule, plan.Why, err = p.cfg.Conversation.Find(ctx, plan.Adapter.About())
	if err != nil {
		return err
	}
	if plan.Capsule != nil {
		plan.Salvage = plan.Capsule.Work
	} else if plan.Salvage, err = p.cfg.Salvages.Last(ctx, plan.Job, p.cfg.Record, p.cfg.Epoch); err != nil {
		return err
	}
	if plan.Salvage != nil && plan.Salvage.BaseCommit != "" {
		plan.Job.Repo.Commit = plan.Salvage.BaseCommit // what was saved leads from there
	}
	return nil
}
