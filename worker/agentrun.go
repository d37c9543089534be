package worker

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/mcpgate"
	"github.com/penstock-run/penstock/worker/internal/sharedbudget"
	"github.com/penstock-run/penstock/worker/internal/spending"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// agent runs the coding agent in its jail until it exits, and returns its
// verdict.
func (r *agentRuns) agent(ctx context.Context) error {
	defer r.of.times.took("agent", time.Now())
	model, err := r.in.Model(r.of.cfg.served())
	if err != nil {
		return err
	}
	defer model.Close()
	if r.round == 0 { // an agent that goes on with a check knows the prompts
		if err := r.of.conversation.Prompts.Load(ctx); err != nil {
			return err
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s, err := r.agentStart(model, end)
	if err != nil {
		return err
	}
	defer s.close()
	err = r.runAgent(ctx, s)
	r.learn(s.run)
	return err
}

// An agentStart is what a run of the agent begins with.
type agentStart struct {
	run     *agentrun.Run
	start   *confine.Start
	stdin   [][]byte      // what the agent reads first
	servers *mcpgate.Gate // nil: it has no MCP servers with a URL
}

func (s *agentStart) close() {
	if s.servers != nil {
		s.servers.Close()
	}
	s.start.Close()
}

// agentStart returns what the next run of the agent begins with. The run ends by end.
func (r *agentRuns) agentStart(model confine.Way, end context.CancelCauseFunc) (*agentStart, error) {
	launch, err := r.launch(model)
	if err != nil {
		return nil, err
	}
	plan, err := r.planStart(launch)
	if err != nil {
		return nil, verdict.Failed(jobs.AgentMissing, "plan the agent's start", err)
	}
	about := r.plan.Adapter.About()
	way := r.gateTo(about.API, model)
	if about.API != "" && r.in.Offline() { // by the worker's policy
		return nil, verdict.Ended(jobs.InvalidJob, "agent %s needs the %s API, and preset offline has no way to it", about.Name, about.API)
	}
	if about.API != "" && way == nil {
		return nil, verdict.Ended(jobs.Unauthorized, "the worker has no key for the %s API and queue %s, which agent %s needs: set %s_API_KEY in its environment, or model.keys", about.API, r.of.rec.Queue, about.Name, strings.ToUpper(about.API))
	}
	start, err := r.in.Agent(plan, wayTo(model, way))
	if err != nil {
		return nil, err
	}
	launch.Penstock, launch.Inside = start.Program, start.Inside
	cfg := r.runConfig(r.plan.Adapter.Decoder(launch), way, end)
	cfg.KeepStdin, cfg.Parkable, cfg.Greets, cfg.Hears = plan.KeepStdin, r.canPark(about), about.Protocol != "command", about.Interactive
	s := &agentStart{start: start, stdin: plan.Stdin, servers: r.servers()}
	if s.servers != nil {
		cfg.MCP = s.servers
	}
	s.run = agentrun.New(cfg)
	return s, nil
}

// learn notes what has become of a run that is over.
func (r *agentRuns) learn(run *agentrun.Run) {
	report := run.Report()
	r.terminals += report.Terminals
	r.again = report.Again
	r.used.Heard(report.Total)
	r.resume = report.Total.Session
	r.at = report.Position
	r.of.conversation.EndRun(report.Turn)
	r.parked = report.Parked
}

// runConfig is what a run of the agent has from its attempt. The run ends by end.
func (r *agentRuns) runConfig(decoder agent.Decoder, way *gate.Gate, end context.CancelCauseFunc) agentrun.Config {
	if way != nil {
		r.used.Measure(r.spending()) // before any line of the agent's, which asks for it
		r.used.Meter().Forgive()
	}
	hooks := r.of.cfg.Hooks
	return agentrun.Config{
		Job: r.plan.Job, Record: r.of.rec, Log: r.of.log, Hangs: r.of.cfg.Hangs, Typed: r.of.cfg.Typed, Lease: r.of.claim,
		Hooks:  agentrun.Hooks{Exited: hooks.Exited, Hung: hooks.Hung, Turn: hooks.Turn},
		Events: r.of.events, Append: r.of.append, Secrets: r.of.secrets,
		Outcome: r.of.out, Snapshot: r.snapshot, Inside: r.of.inside,
		Conversation: r.of.conversation, Prompts: r.of.conversation.Prompts, Recall: r.of.conversation.Questions.Recall, Decided: r.of.conversation.Questions.Decided,
		Spent: func(run agent.Total) jobs.Spent { spent, _ := r.used.Spent(run); return spent },
		Exhausted: func(p gate.Purse) error {
			r.used.Exhausted(p)
			return sharedbudget.Ended(p, r.plan.Job.Budget, time.Now())
		},
		Current: r.current, Way: way, Meter: r.used.Meter(), Terminals: r.terminals,
		Decoder: decoder, End: end, First: r.round == 0,
	}
}

// runAgent starts the agent's jail and runs the agent in it to its end.
func (r *agentRuns) runAgent(ctx context.Context, s *agentStart) error {
	p, err := r.of.jails.Start(ctx, r.in, s.start, s.run.Streams())
	if err != nil {
		return err
	}
	defer r.of.cleanup.release("jail", func() error { return p.Close(context.WithoutCancel(ctx)) })
	defer r.of.touched.Watch(ctx, r.space)()
	listeners := s.start.Listeners(p)
	exit, errs := s.run.Wait(ctx, p, agentrun.Attached{Stdin: s.stdin, Model: listeners.Model, Inside: listeners.Inside})
	err = s.run.Verdict(ctx, r.in.Reached("the agent", exit), exit, errs...)
	r.of.refused.Limits("the agent", exit)
	return err
}

// spending is what the meter of the gate has from the attempt.
func (r *agentRuns) spending() spending.Config {
	shared, keyed := r.shared.Purses()
	worker, job := r.of.cfg.Policy, r.plan.Job.Agent
	return spending.Config{
		Shared: shared, Keyed: keyed, Patience: time.Duration(r.plan.Job.IdleTimeout) / 2,
		Policy: gate.Allowed{Models: worker.Models, Tiers: worker.ServiceTiers, Geos: worker.InferenceGeos, Betas: worker.Betas, Files: worker.FileIDs, Containers: worker.ContainerIDs},
		Job:    gate.Allowed{Models: job.AllowModels, Tiers: job.AllowServiceTiers, Geos: job.AllowInferenceGeos, Betas: job.AllowBetas, Files: job.AllowFileIDs, Containers: job.AllowContainerIDs},
		Record: r.of.rec, Budget: r.plan.Job.Budget, Token: r.of.tokens.model,
		Tell: r.of.events.Put, Clean: r.of.clean, Reached: r.of.cfg.Hooks.Budget,
		Refused: func(v gate.Violation) {
			r.of.refused.Model(r.of.clean(cmp.Or(strings.TrimSpace(v.Method+" "+v.Path), "model API")), v.Field, r.of.clean(v.What))
		},
	}
}

// servers is the agent's way to the job's MCP servers that have a URL; nil: it has none.
func (r *agentRuns) servers() *mcpgate.Gate {
	if r.in.Servers == nil {
		return nil
	}
	return mcpgate.New(mcpgate.Config{
		Servers: r.plan.Job.Agent.MCPServers,
		Secret: func(name string) string {
			value, _ := r.of.cfg.Secret(name) // an attempt that misses one has ended
			return value
		},
		Connect: r.in.Servers.Connect,
		Refused: func(server, why string) { r.of.refused.Note(policy.KindMCP, server, r.of.clean(why)) },
	})
}

// wayTo returns the jail's way to the model API, or nil where no gate serves it.
func wayTo(model confine.Way, served *gate.Gate) *confine.Way {
	if served == nil {
		return nil
	}
	return &model
}
