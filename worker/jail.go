package worker

import (
	"cmp"
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/preparation"
)

// launch collects what the adapter has to know.
func (r *agentRuns) launch(api confine.Way) (agent.Launch, error) {
	program := r.pinned
	if program.Version == "" && r.plan.Job.Isolation != jobs.IsolationContainer {
		var err error
		if program, err = r.of.cfg.Agents.Find(r.plan.Adapter.About().Name); err != nil {
			return agent.Launch{}, err
		}
	}
	l := agent.Launch{
		Job: r.plan.Job, ID: r.of.rec.ID, Session: r.of.rec.Session, Attempt: r.of.rec.Attempt,
		Cwd: r.in.Cwd, Files: r.in.Files, Program: program, Notice: r.notice, Depends: r.depends,
		Round: r.round, Resume: r.resume, Variable: confine.InsideVariable,
	}
	set := r.of.conversation.Prompts.Settings()
	l.Job.Agent.Model, l.Job.Agent.Effort, l.Mode = cmp.Or(set.Model, l.Job.Agent.Model), cmp.Or(set.Effort, l.Job.Agent.Effort), set.Mode
	if api.Served {
		l.Gate, l.Key = "http://"+api.Address, r.of.tokens.model
	}
	if r.round == 0 {
		about := r.plan.Adapter.About()
		if about.Protocol != "command" { // whose programs ask again
			l.Replies = r.of.conversation.Questions.Replies()
		}
		l = r.of.conversation.Launch(l, about.TakesPrompts(r.plan.Job.Agent.Interactive))
	}
	if failed := r.failed; failed != nil {
		l = l.Failed(failed.Ended.Check, failed.Ended.Output)
	}
	return l, nil
}

// pin takes the version of the agent that the job names, if it names one. It stays installed
// until release is called.
func (r *agentRuns) pin(ctx context.Context, plan *preparation.Plan) (release func(), err error) {
	named := plan.Job.Agent
	if named.Version == "" {
		return func() {}, nil
	}
	var done func() error
	r.pinned, done, err = r.of.cfg.Agents.Use(ctx, named.Name, named.Version, plan.Job.Isolation == jobs.IsolationContainer)
	if err != nil {
		return nil, err
	}
	r.of.out.Result.SetAgent(r.pinned.Version, r.pinned.Digest)
	return func() { r.of.cleanup.release("agent version", done) }, nil
}

// planStart is how the agent starts.
func (r *agentRuns) planStart(l agent.Launch) (agent.Plan, error) {
	plan, err := r.plan.Adapter.Launch(l)
	plan.Program = r.pinned
	return plan, err
}

// gateTo is the way to a model API. A program that names none may find the
// first of them useful.
func (r *agentRuns) gateTo(api string, way confine.Way) *gate.Gate {
	if r.in.Offline() || !way.Served {
		return nil
	}
	if g := r.of.cfg.Gates[cmp.Or(api, "anthropic")]; g.Serves(r.of.rec.Queue) {
		return g
	}
	return nil
}

// served reports whether there is a key of any model API.
func (c Config) served() bool {
	for _, g := range c.Gates {
		if !g.Empty() {
			return true
		}
	}
	return false
}

// diagnosed adds its cause to an error of a jail, if that is known.
func (c Config) diagnosed(err error) error {
	if c.Diagnose == nil {
		return err
	}
	if cause := c.Diagnose(err); cause != "" {
		return fmt.Errorf("%w (%s)", err, cause)
	}
	return err
}
