package worker

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/terminals"
)

// agent runs the coding agent in its jail until it exits, and returns its
// verdict.
func (a *attempt) agent(ctx context.Context, in confine.Jail, adapter agent.Adapter) error {
	defer a.took("agent", time.Now())
	model, err := in.Model(len(a.cfg.Gates) > 0)
	if err != nil {
		return err
	}
	defer model.Close()
	if a.talk.round == 0 { // an agent that goes on with a check is told nothing again
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
	run := a.newRun(adapter.Decoder(launch), way, end)
	run.keepStdin, run.parkable, run.greets, run.hears = plan.KeepStdin, a.canPark(about), about.Protocol != "command", about.Interactive
	err = a.runAgent(ctx, in, start, run, plan.Stdin)
	a.talk.heard(run.decoder.Total())
	a.talk.at = run.position()
	a.conversation.EndRun(run.turn)
	a.parked = run.parked
	return err
}

// newRun returns a run of the agent that has not begun. It ends by end.
func (a *attempt) newRun(decoder agent.Decoder, way *gate.Gate, end context.CancelCauseFunc) *agentRun {
	if way != nil {
		a.measure() // before any line of the agent's, which asks for it
		a.talk.meter.Forgive()
	}
	return &agentRun{
		job: a.job, rec: a.rec, log: a.log, hangs: a.cfg.Hangs, hooks: a.cfg.Hooks, typed: a.cfg.Typed,
		claim: a.claim, events: a.events, append: a.append, secrets: a.secrets, refused: a.refused,
		out: a.out, snapshot: a.snapshot, inside: a.inside, conversation: a.conversation, runs: &a.talk, floor: &a.floor,
		meter: a.talk.meter, way: way, before: a.terminals,
		decoder: decoder, end: end, news: make(chan struct{}, 1), rested: make(chan conversation.Position, 1),
	}
}

// append stores what must be in the session's log before it is acted on. It is the proof of
// the lease, too: the broker refuses the event of an attempt that another one has followed.
func (a *attempt) append(ctx context.Context, e jobs.Event) error {
	return a.writer.Append(ctx, a.secrets.Event(e))
}

// runAgent starts the agent's jail and runs the agent in it to its end. Stdin is what it
// reads first.
func (a *attempt) runAgent(ctx context.Context, in confine.Jail, start *confine.Start, run *agentRun, stdin [][]byte) error {
	out := newOutput()
	p, err := a.start(ctx, in, start, sandbox.Streams{Stdout: out.stdoutIn, Stderr: out.stderrIn, StdinPipe: true})
	if err != nil {
		return err
	}
	defer a.release("jail", "cleanup", func() error { return p.Close(context.WithoutCancel(ctx)) })
	run.process = p
	exit, errs := run.wait(ctx, start.Doors(p), out, stdin)
	a.terminals += run.terminals.Opened()
	err = run.verdict(ctx, in.Reached("the agent", exit), exit, errs...)
	a.again = run.again
	return err
}

// wayTo returns the jail's way to the model API, or nil where no gate serves it.
func wayTo(model confine.Way, served *gate.Gate) *confine.Way {
	if served == nil {
		return nil
	}
	return &model
}

// An agentRun joins one agent process to the session's events.
type agentRun struct {
	// What it has from its attempt.
	job          jobs.Job
	rec          jobs.Record
	log          *slog.Logger
	hangs        Hangs
	hooks        Hooks
	typed        func(schema, value json.RawMessage) error
	claim        *queue.Claim
	events       *recorder
	append       func(context.Context, jobs.Event) error
	secrets      *redact.Redactor
	refused      *policy.Watch
	out          *outcome.Outcome
	snapshot     func(context.Context) (*jobs.Salvage, error)
	inside       *inside.Server
	conversation *conversation.Conversation
	runs         *agentRuns
	floor        *floor
	meter        *gate.Session // of what goes through the gate; nil: nothing does
	before       int           // terminals of the runs before

	end       context.CancelCauseFunc
	keepStdin bool
	greets    bool // its protocol begins with a word of the agent
	hears     bool // an interactive job of it can be talked to
	parkable  bool // it may end with a question, and get the answer when it is run again
	process   *sandbox.Process
	in        *input
	way       *gate.Gate    // out of the jail; nil: there is none
	news      chan struct{} // has a value when watch has to look at once

	mu      sync.Mutex
	decoder agent.Decoder
	state   agent.State
	pulse   pulse
	found   *event.Hang // the agent hung
	foundAt time.Time
	step    string        // the last that was taken to end it
	asks    []openAsk     // questions that are open
	asking  *jobs.OpenAsk // that the record tells
	turn    int           // the agent's, as its last line told
	began   time.Time     // when that turn did
	leaving string        // who has told the agent to stop; empty: nobody
	work    undertaking
	paced   int // readers of its output that wait for the broker
	taking  int // control messages that are decided on and not stored yet
	// offered is the last sign of life at which the session was to be parked.
	offered time.Time
	parked  *parking // it is being parked
	// questions are those of the jail's programs that are open.
	questions map[string]pending
	rested    chan conversation.Position // has a value when a turn is over and the agent is kept
	terminals *terminals.Set
	// again is when the model API said to come again, if the run ended for that.
	again time.Time
}

// An output is what carries an agent's two streams to their readers.
type output struct {
	stdout, stderr     *io.PipeReader
	stdoutIn, stderrIn *io.PipeWriter
}

func newOutput() output {
	var o output
	o.stdout, o.stdoutIn = io.Pipe()
	o.stderr, o.stderrIn = io.Pipe()
	return o
}

// wait runs the agent to its end. Whatever happens, nothing of it is alive
// when wait returns, and every line it wrote is recorded. The errors are those of the
// ways to the process and from it.
func (r *agentRun) wait(ctx context.Context, doors confine.Doors, out output, stdin [][]byte) (sandbox.Exit, []error) {
	p := r.process
	r.in = newInput(p.Stdin())
	r.pulse.began = time.Now()
	r.pulse.last, r.pulse.measured = r.pulse.began, r.pulse.began
	r.in.put(stdin...)
	r.replay()
	if !r.keepStdin {
		r.in.close()
	}
	r.terminals = terminals.New(r.terminalConfig())
	var readers, others errgroup.Group
	readers.Go(func() error { return r.read(out.stdout, agent.Stdout) })
	readers.Go(func() error { return r.read(out.stderr, agent.Stderr) })
	gated, closeGate := context.WithCancel(ctx)
	others.Go(func() error { return r.serveModel(gated, doors.Model) })
	others.Go(func() error { return r.serveInside(gated, doors.Inside) })
	others.Go(func() error { r.in.run(p.Done()); return nil })
	others.Go(func() error { r.watch(); return nil })
	others.Go(func() error { r.keepCapsules(ctx); return nil })

	r.floor.set(r)
	exit, err := p.Wait()
	r.floor.set(nil)
	r.claim.Ask(nil) // it waits for nothing any more
	r.terminals.Close()
	_, _ = out.stdoutIn.Close(), out.stderrIn.Close() // the readers see the end; closing a pipe cannot fail
	unread := readers.Wait()
	closeGate()
	return exit, []error{err, others.Wait(), unread}
}

// verdict records how the process ended and says what that means. Limit is the
// limit of the job that it has reached, and errs what else has failed.
func (r *agentRun) verdict(ctx context.Context, limit error, exit sandbox.Exit, errs ...error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	signal := ""
	if exit.Signal != 0 {
		signal = exit.Signal.String()
	}
	exited, end := r.decoder.Exit(exit.Code, signal)
	r.events.put(exited)
	hung := r.hung(exit.Signal == syscall.SIGKILL)
	if r.hooks.Exited != nil {
		ended, _ := exited.Payload.(event.RunExited)
		r.hooks.Exited(r.rec, ended.Class, slices.Contains(exit.Reached, sandbox.FeatureMemory))
	}
	blamed := limit != nil && end.Outcome != jobs.Success && slices.Contains(unexplained, end.Reason)
	noteLimits(r.refused, "the agent", exit)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, err := range errs {
		if err != nil {
			return verdict.Failed(jobs.SandboxFailed, "run the agent", err)
		}
	}
	if r.parked != nil {
		return verdict.ErrParked
	}
	if hung.Outcome != "" {
		return r.explained(hung)
	}
	if r.leaving != "" && end.Outcome != jobs.Success {
		return verdict.Ended(jobs.Cancelled, "%s stopped the agent within its turn", r.leaving)
	}
	if end.Outcome == jobs.Success {
		return nil
	}
	if blamed {
		return limit
	}
	return r.explained(end)
}

// read carries every line of one stream to the events.
func (r *agentRun) read(stream *io.PipeReader, name string) error {
	err := agent.ReadLines(counted{stream, r.wrote}, name, agent.MaxLine, func(line agent.Line) error {
		r.line(line)
		r.pace()
		return nil
	})
	// Whoever writes must never wait for a reader that has gone.
	stream.CloseWithError(err)
	return err
}

// pace holds an agent up that writes faster than the broker takes it. Silence for
// that reason is not the agent's.
func (r *agentRun) pace() {
	if !r.events.full() {
		return
	}
	held := func(by int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paced += by
		r.pulse.last = time.Now()
	}
	held(1)
	defer held(-1)
	r.events.pace()
}

// A counted reader tells how much was read. A line that never ends counts as
// it grows.
type counted struct {
	io.Reader
	tell func(int)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.tell(n)
	return n, err
}

func (r *agentRun) wrote(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulse.written += int64(n)
	r.alarm()
}

// alarm has watch look at once where something is found already.
func (r *agentRun) alarm() {
	if r.beyond(r.pulse.last) != nil {
		r.wake()
	}
}

// wake has watch look at once.
func (r *agentRun) wake() {
	select {
	case r.news <- struct{}{}:
	default: // it will
	}
}

func (r *agentRun) line(line agent.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.decoder.Line(line)
	r.timeTurns(read.Events, time.Now())
	if r.parked != nil {
		return // it ends where its capsule was stored
	}
	if r.pulse.written > r.hangs.Output {
		r.events.drop(len(read.Events)) // the flood is not kept while it is ended
	} else {
		r.events.putOutput(read.Events...)
	}
	r.turns(read.Events)
	r.work.note(read.Events)
	r.asked(read.Events)
	r.spare()
	r.conversation.Prompts.Note(read.Events)
	if len(read.Reply) > 0 {
		r.in.put(read.Reply...)
	}
	if read.Hopeless != "" {
		r.end(verdict.Ended(read.Hopeless, "the agent tries on, but it cannot succeed: %s", jobs.Reasons[read.Hopeless].Advice))
	}
	r.pulse.because = read.Retried
	r.pulse.beat(time.Now(), len(line.Bytes), read.Events)
	r.alarm()
	r.rest(read.State)
}

// rest closes the input of an agent that is done, or could not begin. When it is done once more,
// after a turn that the end of its input began, its time to exit begins again.
func (r *agentRun) rest(state agent.State) {
	kept := r.job.Agent.Interactive && r.leaving == "" && r.found == nil
	rests := state != agent.Working && r.state == agent.Working
	r.state = state
	open := r.pulse.closed.IsZero()
	if open && (state == agent.Idle && !kept || state == agent.Over) || !open && rests {
		r.closeStdin()
	}
	if open && kept && rests {
		r.stay()
	}
}

// turns notes how far the agent has come, and what that took: whoever comes
// after a worker that died adds it up. The end of a turn is written at once.
func (r *agentRun) turns(events []event.Event) {
	spent, _ := r.runs.spent(r.decoder.Total())
	r.claim.Spend(spent)
	for _, e := range events {
		r.turn = e.Turn
		if e.Kind == jobs.TurnEnded {
			r.claim.Renew()
		}
		if e.Kind == jobs.TurnEnded && r.hooks.Turn != nil {
			r.hooks.Turn(r.rec)
		}
	}
}

// timeTurns measures the turns whose agent does not tell how long they took.
func (r *agentRun) timeTurns(events []event.Event, now time.Time) {
	for i, e := range events {
		switch turn := e.Payload.(type) {
		case event.TurnStarted:
			r.began = now
		case event.TurnEnded:
			if turn.Seconds == 0 && !r.began.IsZero() {
				turn.Seconds = now.Sub(r.began).Seconds()
				events[i] = e.With(turn)
			}
			r.began = time.Time{}
		}
	}
}

// closeStdin tells the agent that nothing more will be asked. From then on it
// is bounded how long it may take to exit.
func (r *agentRun) closeStdin() {
	r.in.close()
	r.pulse.closed = time.Now()
	r.wake() // there is another time to look
}
