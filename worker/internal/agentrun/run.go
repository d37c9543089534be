// Package agentrun runs one process of the agent, from its start to its end, and joins it to the
// session: its lines become events, and messages become its input.
//
//	jail ──lines──▶ decoder ──events──▶ recorder          watch: hang, stop, park ──▶ end
//	 ▲ └──questions, files, a result──▶ lease, outcome      ▲
//	 └──input── prompts, answers ◀── Control ──Append──▶ the session's log
//
// What is known of the agent, and what follows from it, is a [state] of parts that do not know each
// other: a watchdog, the open [questions], the [work] that the agent has begun, its [turns]. A [Run]
// never waits under the lock of that state: not for the log, not for the agent, and
// not for a program in the jail. It knows no queue, no store and no workspace: what it needs of them
// stands in its [Config].
package agentrun

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/images"
	"github.com/penstock-run/penstock/worker/internal/recorder"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/internal/watchdog"
	"github.com/penstock-run/penstock/worker/terminals"
)

// Config is what a run has from its attempt.
type Config struct {
	Job    jobs.Job
	Record jobs.Record
	Log    *slog.Logger
	Hangs  watchdog.Hangs
	Hooks  Hooks
	// Typed reports why a value does not fit the job's schema.
	Typed func(schema, value json.RawMessage) error
	Lease Lease
	// Events takes what the session is told, and Append what must be in its log before it is
	// acted on: that proves the lease, too.
	Events  *recorder.Recorder
	Append  func(context.Context, jobs.Event) error
	Secrets *redact.Redactor
	Outcome Outcome
	// Snapshot stores what was changed in the workspace by now.
	Snapshot     func(context.Context) (*jobs.Salvage, error)
	Inside       *inside.Server
	MCP          http.Handler // passes messages to the job's MCP servers that have a URL; nil: there is none
	Conversation Conversation
	Prompts      Prompts
	// Recall answers a question that was asked in an earlier attempt.
	Recall func(control.Question) (inside.Answer, bool)
	// Decided answers a request for permission that was made in an earlier attempt, too.
	Decided func(control.Ask) (control.Message, bool)
	// Spent is what the attempt has used, with what this run has.
	Spent func(run agent.Total) jobs.Spent
	// Current is told which run takes control messages now; nil: none does.
	Current func(*Run)
	Way     *gate.Gate    // out of the jail; nil: there is none
	Meter   *gate.Session // of what goes through the gate; nil: nothing does
	// Exhausted is how the run ends when a budget is spent that the job shares.
	Exhausted func(gate.Purse) error
	// Terminals is how many the runs before this one have had.
	Terminals int

	Decoder   agent.Decoder
	End       context.CancelCauseFunc // of the run
	First     bool                    // it does not follow on a failed check
	KeepStdin bool
	Greets    bool // the agent's protocol begins with a word of the agent
	Hears     bool // an interactive job of the agent can be talked to
	Parkable  bool // it may end with a question, and get the answer when it is run again
}

// Hooks let the worker's watchers see what becomes of the agent. Each may be nil.
type Hooks struct {
	Exited func(rec jobs.Record, class string, full bool)
	Hung   func(rec jobs.Record, what, step string)
	Turn   func(rec jobs.Record)
}

// A Lease is the attempt's: what the record tells of the run. Its methods do not block.
type Lease interface {
	Spend(jobs.Spent)
	Ask(*jobs.OpenAsk)
	Renew()
}

// An Outcome keeps what the programs of the jail send.
type Outcome interface {
	Send(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error)
	Keep(ctx context.Context, name string, content io.Reader) (jobs.Artifact, error)
	Attach(file jobs.Artifact)
	SetValue(value json.RawMessage)
}

// A Conversation outlives the run.
type Conversation interface {
	Continues() bool
	Kept() bool
	Turns() int
	Settle(ctx context.Context, at conversation.Position, rests func() bool)
	Store(ctx context.Context, at conversation.Position, why jobs.Reason, work func(context.Context) (*jobs.Salvage, error)) bool
}

// Prompts are what the agent is told, and what of it the conversation has.
type Prompts interface {
	Rest() []images.Prompt
	Tells(id string)
	Change(to control.Settings)
	Note(events []event.Event)
	Heard() []string
}

// A Run joins one agent process to the session's events.
type Run struct {
	cfg       Config
	state     *state
	process   *sandbox.Process
	terminals *terminals.Set
	again     time.Time

	begun          chan struct{} // closed once lines may come
	stdout, stderr *output
}

// New returns a run that has not begun.
func New(cfg Config) *Run {
	r := &Run{cfg: cfg, state: newState(cfg), begun: make(chan struct{})}
	r.stdout, r.stderr = r.newOutput(agent.Stdout), r.newOutput(agent.Stderr)
	return r
}

// A Report says what has become of a run.
type Report struct {
	Total     agent.Total           // what the agent told of itself
	Turn      int                   // of the agent
	Position  conversation.Position // how far it has come
	Parked    *Parking              // how the session is parked; nil: it is not
	Again     time.Time             // when the model API said to come again, if the run ended for that
	Terminals int                   // that were opened
}

// Report says how far the run has come.
func (r *Run) Report() Report {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	report := Report{
		Total: r.cfg.Decoder.Total(), Turn: r.state.turns.turn, Position: r.state.position(),
		Parked: r.state.parked, Again: r.again,
	}
	if r.terminals != nil {
		report.Terminals = r.terminals.Opened()
	}
	return report
}

// Over reports whether the agent has ended.
func (r *Run) Over() bool {
	select {
	case <-r.process.Done():
		return true
	default:
		return false
	}
}

// Attached is what a run has of its agent besides the process.
type Attached struct {
	Stdin  [][]byte     // what the agent reads first
	Model  net.Listener // leads to the model API; nil: nothing does
	Inside net.Listener // leads to the worker; nil: nothing does
}

// Wait runs the agent to its end. Whatever happens, nothing of it is alive
// when Wait returns, and every line it wrote is recorded. The errors are those of the
// ways to the process and from it.
func (r *Run) Wait(ctx context.Context, p *sandbox.Process, a Attached) (sandbox.Exit, []error) {
	api := r.begin(p, a.Stdin)
	r.cfg.Current(r) // before there are events: who sees one may have something to say
	close(r.begun)
	var others errgroup.Group
	gated, closeGate := context.WithCancel(ctx)
	others.Go(func() error { return serveModel(gated, r.cfg, a.Model) })
	others.Go(func() error { return api.serve(gated, a.Inside) })
	others.Go(func() error { r.state.in.run(p.Done()); return nil })
	others.Go(func() error { r.watch(); return nil })
	others.Go(func() error { r.keepCapsules(ctx); return nil })

	exit, err := p.Wait()
	r.cfg.Current(nil)
	r.cfg.Lease.Ask(nil) // it waits for nothing any more
	r.terminals.Close()
	r.stdout.lines.End()
	r.stderr.lines.End()
	closeGate()
	return exit, []error{err, others.Wait()}
}

// begin joins the run to a process that has started, and queues what the agent is to read
// first. It returns what the programs of the jail may ask for.
func (r *Run) begin(p *sandbox.Process, stdin [][]byte) *jailAPI {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	r.process, r.state.in.to = p, p.Stdin()
	r.state.watchdog.Start(time.Now(), p)
	r.state.in.put(stdin...)
	if r.cfg.First {
		r.state.in.add(r.state.recipient.recite(r.cfg.Prompts.Rest())...)
	}
	if !r.cfg.KeepStdin {
		r.state.in.close()
	}
	api := &jailAPI{cfg: r.cfg, tell: r.tell, ask: r.ask}
	r.terminals = terminals.New(api.terminalConfig(p, r.output))
	api.terminals = r.terminals
	return api
}

// Verdict records how the process ended and says what that means. Limit is the
// limit of the job that it has reached, and errs what else has failed.
func (r *Run) Verdict(ctx context.Context, limit error, exit sandbox.Exit, errs ...error) error {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	signal := ""
	if exit.Signal != 0 {
		signal = exit.Signal.String()
	}
	exited, end := r.cfg.Decoder.Exit(exit.Code, signal)
	if r.cfg.Meter != nil && r.cfg.Greets { // a program without a protocol says by its status what it has done
		end = r.cfg.Meter.Failing().Doubt(end)
	}
	r.cfg.Events.Put(exited)
	hung := r.hung(exit.Signal == syscall.SIGKILL)
	if r.cfg.Hooks.Exited != nil {
		ended, _ := exited.Payload.(event.RunExited)
		r.cfg.Hooks.Exited(r.cfg.Record, ended.Class, slices.Contains(exit.Reached, sandbox.FeatureMemory))
	}
	blamed := limit != nil && end.Outcome != jobs.Success && slices.Contains(unexplained, end.Reason)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, err := range errs {
		if err != nil {
			return verdict.Failed(jobs.SandboxFailed, "run the agent", err)
		}
	}
	switch stopped := r.state.stopped; {
	case r.state.parked != nil:
		return verdict.ErrParked
	case hung.Outcome != "":
		return r.explained(hung)
	case stopped != "" && end.Outcome != jobs.Success:
		return verdict.Ended(jobs.Cancelled, "%s stopped the agent within its turn", stopped)
	case end.Outcome == jobs.Success:
		return nil
	case blamed:
		return limit
	}
	return r.explained(end)
}

// hung reports how an agent that hung has ended, and returns the reason for the end of
// the attempt, if that is it. All processes of the agent have ended: Wait waits for
// that.
func (r *Run) hung(killed bool) jobs.Ended {
	end, ok := r.state.hang.ended(time.Now(), killed)
	if !ok {
		return jobs.Ended{}
	}
	r.cfg.Events.Put(event.Make(event.HangEnded(end)))
	if r.cfg.Hooks.Hung != nil {
		r.cfg.Hooks.Hung(r.cfg.Record, end.What, end.Step)
	}
	if end.Reason == "" {
		return jobs.Ended{}
	}
	return end.Reason.Ended("the agent hung: " + end.Message)
}

// explained is how the run ended, with what its gate saw.
func (r *Run) explained(own jobs.Ended) error {
	if r.cfg.Meter != nil {
		seen := r.cfg.Meter.Failing()
		own, r.again = blame(own, seen), seen.Again
	}
	return &verdict.EndedError{Ended: own}
}
