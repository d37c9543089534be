package worker

import (
	"context"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// agent runs the coding agent in its jail until it exits, and returns its
// verdict.
func (a *attempt) agent(ctx context.Context, in confine.Jail, adapter agent.Adapter) error {
	defer a.times.took("agent", time.Now())
	model, err := in.Model(len(a.cfg.Gates) > 0)
	if err != nil {
		return err
	}
	defer model.Close()
	if a.talk.round == 0 { // an agent that goes on with a check knows the prompts
		if err := a.conversation.Prompts.Load(ctx); err != nil {
			return err
		}
	}
	launch, err := a.launch(in, model, adapter)
	if err != nil {
		return err
	}
	plan, err := adapter.Launch(launch)
	if err != nil {
		return verdict.Failed(jobs.AgentMissing, "plan the agent's start", err)
	}
	about := adapter.About()
	way := a.gateTo(in, about.API)
	if about.API != "" && in.Offline() { // by the worker's policy
		return verdict.Ended(jobs.InvalidJob, "agent %s needs the %s API, and preset offline has no way to it", about.Name, about.API)
	}
	if about.API != "" && way == nil {
		return verdict.Ended(jobs.Unauthorized, "the worker has no key for the %s API, which agent %s needs: set %s_API_KEY in its environment", about.API, about.Name, strings.ToUpper(about.API))
	}
	start, err := in.Agent(plan, wayTo(model, way))
	if err != nil {
		return err
	}
	defer start.Close()
	launch.Penstock, launch.Inside = start.Program, start.Inside
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	cfg := a.runConfig(adapter.Decoder(launch), way, end)
	cfg.KeepStdin, cfg.Parkable, cfg.Greets, cfg.Hears = plan.KeepStdin, a.canPark(about), about.Protocol != "command", about.Interactive
	run := agentrun.New(cfg)
	err = a.runAgent(ctx, in, start, run, plan.Stdin)
	report := run.Report()
	a.talk.heard(report.Total)
	a.talk.at = report.Position
	a.conversation.EndRun(report.Turn)
	a.parked = report.Parked
	return err
}

// runConfig is what a run of the agent has from its attempt. The run ends by end.
func (a *attempt) runConfig(decoder agent.Decoder, way *gate.Gate, end context.CancelCauseFunc) agentrun.Config {
	if way != nil {
		a.measure() // before any line of the agent's, which asks for it
		a.talk.meter.Forgive()
	}
	hooks := a.cfg.Hooks
	return agentrun.Config{
		Job: a.job, Record: a.rec, Log: a.log, Hangs: a.cfg.Hangs, Typed: a.cfg.Typed, Lease: a.claim,
		Hooks:  agentrun.Hooks{Exited: hooks.Exited, Hung: hooks.Hung, Turn: hooks.Turn},
		Events: a.events, Append: a.append, Secrets: a.secrets,
		Outcome: a.out, Snapshot: a.snapshot, Inside: a.inside,
		Conversation: a.conversation, Prompts: a.conversation.Prompts, Recall: a.conversation.Questions.Recall,
		Spent:   func(run agent.Total) jobs.Spent { spent, _ := a.talk.spent(run); return spent },
		Current: a.current.set, Way: way, Meter: a.talk.meter, Terminals: a.terminals,
		Decoder: decoder, End: end, First: a.talk.round == 0,
	}
}

// append stores what must be in the session's log before it is acted on. It is the proof of
// the lease, too: the broker refuses the event of an attempt that another one has followed.
func (a *attempt) append(ctx context.Context, e jobs.Event) error {
	return a.writer.Append(ctx, a.secrets.Event(e))
}

// runAgent starts the agent's jail and runs the agent in it to its end. Stdin is what it
// reads first.
func (a *attempt) runAgent(ctx context.Context, in confine.Jail, start *confine.Start, run *agentrun.Run, stdin [][]byte) error {
	out := agentrun.NewOutput()
	p, err := a.jails.Start(ctx, in, start, sandbox.Streams{Stdout: out.Stdout, Stderr: out.Stderr, StdinPipe: true})
	if err != nil {
		return err
	}
	defer a.cleanup.release("jail", func() error { return p.Close(context.WithoutCancel(ctx)) })
	listeners := start.Listeners(p)
	exit, errs := run.Wait(ctx, p, agentrun.Attached{Stdin: stdin, Output: out, Model: listeners.Model, Inside: listeners.Inside})
	err = run.Verdict(ctx, in.Reached("the agent", exit), exit, errs...)
	a.refused.Limits("the agent", exit)
	report := run.Report()
	a.terminals += report.Terminals
	a.again = report.Again
	return err
}

// wayTo returns the jail's way to the model API, or nil where no gate serves it.
func wayTo(model confine.Way, served *gate.Gate) *confine.Way {
	if served == nil {
		return nil
	}
	return &model
}
