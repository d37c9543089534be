// Package agentrun runs one process of the agent, from its start to its end, and joins it to the
// session: its lines become events, and messages become its input.
//
//	jail ──lines──▶ decoder ──events──▶ recorder          watch: hang, stop, park ──▶ end
//	 ▲ └──questions, files, a result──▶ lease, outcome      ▲
//	 └──input── prompts, answers ◀── Control ──Append──▶ the session's log
//
// A [Run] decides under its lock and never waits under it: not for the log, not for the agent, and
// not for a program in the jail. It knows no queue, no store and no workspace: what it needs of them
// stands in its [Config].
package agentrun

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
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
	"github.com/penstock-run/penstock/worker/terminals"
)

// Config is what a run has from its attempt.
type Config struct {
	Job    jobs.Job
	Record jobs.Record
	Log    *slog.Logger
	Hangs  Hangs
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
	Conversation Conversation
	Prompts      Prompts
	// Recall answers a question that was asked in an earlier attempt.
	Recall func(control.Question) (inside.Answer, bool)
	// Spent is what the attempt has used, with what this run has.
	Spent func(run agent.Total) jobs.Spent
	// Current is told which run takes control messages now; nil: none does.
	Current func(*Run)
	Way     *gate.Gate    // out of the jail; nil: there is none
	Meter   *gate.Session // of what goes through the gate; nil: nothing does
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
	Store(ctx context.Context, at conversation.Position, why jobs.Reason, work func(context.Context) (*jobs.Salvage, error)) bool
}

// Prompts are what the agent is told, and what of it the conversation has.
type Prompts interface {
	Rest() []images.Prompt
	Tells(id string)
	Note(events []event.Event)
	Heard() []string
}

// A Run joins one agent process to the session's events.
type Run struct {
	cfg     Config
	process *sandbox.Process
	in      *input
	news    chan struct{} // has a value when watch has to look at once

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
	parked  *Parking // it is being parked
	// questions are those of the jail's programs that are open.
	questions map[string]pending
	rested    chan conversation.Position // has a value when a turn is over and the agent is kept
	terminals *terminals.Set
	// again is when the model API said to come again, if the run ended for that.
	again time.Time
}

// New returns a run that has not begun.
func New(cfg Config) *Run {
	return &Run{cfg: cfg, decoder: cfg.Decoder, news: make(chan struct{}, 1), rested: make(chan conversation.Position, 1)}
}

// Total is what the agent has reported of itself.
func (r *Run) Total() agent.Total { return r.decoder.Total() }

// Turn counts the agent's turns.
func (r *Run) Turn() int { return r.turn }

// Parked is how the session is parked; nil: it is not.
func (r *Run) Parked() *Parking { return r.parked }

// Again is when the model API said to come again, if the run ended for that.
func (r *Run) Again() time.Time { return r.again }

// Terminals counts those of this run.
func (r *Run) Terminals() int { return r.terminals.Opened() }

// An Output is what carries an agent's two streams to their readers.
type Output struct {
	// Stdout and Stderr are for the jail.
	Stdout, Stderr *io.PipeWriter
	stdout, stderr *io.PipeReader
}

// NewOutput returns what an agent that is to be started writes to.
func NewOutput() Output {
	var o Output
	o.stdout, o.Stdout = io.Pipe()
	o.stderr, o.Stderr = io.Pipe()
	return o
}

// Attached is what a run has of its agent besides the process.
type Attached struct {
	Stdin  [][]byte // what the agent reads first
	Output Output
	Model  net.Listener // leads to the model API; nil: nothing does
	Inside net.Listener // leads to the worker; nil: nothing does
}

// Wait runs the agent to its end. Whatever happens, nothing of it is alive
// when Wait returns, and every line it wrote is recorded. The errors are those of the
// ways to the process and from it.
func (r *Run) Wait(ctx context.Context, p *sandbox.Process, a Attached) (sandbox.Exit, []error) {
	r.process = p
	r.in = newInput(p.Stdin())
	r.pulse.began = time.Now()
	r.pulse.last, r.pulse.measured = r.pulse.began, r.pulse.began
	r.in.put(a.Stdin...)
	r.replay()
	if !r.cfg.KeepStdin {
		r.in.close()
	}
	r.terminals = terminals.New(r.terminalConfig())
	var readers, others errgroup.Group
	readers.Go(func() error { return r.read(a.Output.stdout, agent.Stdout) })
	readers.Go(func() error { return r.read(a.Output.stderr, agent.Stderr) })
	gated, closeGate := context.WithCancel(ctx)
	others.Go(func() error { return r.serveModel(gated, a.Model) })
	others.Go(func() error { return r.serveInside(gated, a.Inside) })
	others.Go(func() error { r.in.run(p.Done()); return nil })
	others.Go(func() error { r.watch(); return nil })
	others.Go(func() error { r.keepCapsules(ctx); return nil })

	r.cfg.Current(r)
	exit, err := p.Wait()
	r.cfg.Current(nil)
	r.cfg.Lease.Ask(nil) // it waits for nothing any more
	r.terminals.Close()
	_, _ = a.Output.Stdout.Close(), a.Output.Stderr.Close() // the readers see the end; closing a pipe cannot fail
	unread := readers.Wait()
	closeGate()
	return exit, []error{err, others.Wait(), unread}
}

// Verdict records how the process ended and says what that means. Limit is the
// limit of the job that it has reached, and errs what else has failed.
func (r *Run) Verdict(ctx context.Context, limit error, exit sandbox.Exit, errs ...error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	signal := ""
	if exit.Signal != 0 {
		signal = exit.Signal.String()
	}
	exited, end := r.decoder.Exit(exit.Code, signal)
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
func (r *Run) read(stream *io.PipeReader, name string) error {
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
func (r *Run) pace() {
	if !r.cfg.Events.Full() {
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
	r.cfg.Events.Pace()
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

func (r *Run) wrote(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulse.written += int64(n)
	r.alarm()
}

// alarm has watch look at once where something is found already.
func (r *Run) alarm() {
	if r.beyond(r.pulse.last) != nil {
		r.wake()
	}
}

// wake has watch look at once.
func (r *Run) wake() {
	select {
	case r.news <- struct{}{}:
	default: // it will
	}
}

func (r *Run) line(line agent.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.decoder.Line(line)
	r.timeTurns(read.Events, time.Now())
	if r.parked != nil {
		return // it ends where its capsule was stored
	}
	if r.pulse.written > r.cfg.Hangs.Output {
		r.cfg.Events.Drop(len(read.Events)) // the flood is not kept while it is ended
	} else {
		r.cfg.Events.PutOutput(read.Events...)
	}
	r.turns(read.Events)
	r.work.note(read.Events)
	r.asked(read.Events)
	r.spare()
	r.cfg.Prompts.Note(read.Events)
	if len(read.Reply) > 0 {
		r.in.put(read.Reply...)
	}
	if read.Hopeless != "" {
		r.cfg.End(verdict.Ended(read.Hopeless, "the agent tries on, but it cannot succeed: %s", jobs.Reasons[read.Hopeless].Advice))
	}
	r.pulse.because = read.Retried
	r.pulse.beat(time.Now(), len(line.Bytes), read.Events)
	r.alarm()
	r.rest(read.State)
}

// rest closes the input of an agent that is done, or could not begin. When it is done once more,
// after a turn that the end of its input began, its time to exit begins again.
func (r *Run) rest(state agent.State) {
	kept := r.cfg.Job.Agent.Interactive && r.leaving == "" && r.found == nil
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
func (r *Run) turns(events []event.Event) {
	r.cfg.Lease.Spend(r.cfg.Spent(r.decoder.Total()))
	for _, e := range events {
		r.turn = e.Turn
		if e.Kind == jobs.TurnEnded {
			r.cfg.Lease.Renew()
		}
		if e.Kind == jobs.TurnEnded && r.cfg.Hooks.Turn != nil {
			r.cfg.Hooks.Turn(r.cfg.Record)
		}
	}
}

// timeTurns measures the turns whose agent does not tell how long they took.
func (r *Run) timeTurns(events []event.Event, now time.Time) {
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
func (r *Run) closeStdin() {
	r.in.close()
	r.pulse.closed = time.Now()
	r.wake() // there is another time to look
}
