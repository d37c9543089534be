package worker

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
)

// exitGrace is how long an agent may take to exit once its turn is over and
// its input is closed. Then it is ended; what it did counts all the same.
const exitGrace = 15 * time.Second

// agent runs the coding agent in its jail until it exits, and returns its
// verdict.
func (a *attempt) agent(ctx context.Context, in jail, adapter agent.Adapter) error {
	began := time.Now()
	defer func() { a.result.Durations.Agent += a.stage("agent", began) }()
	if a.job.Sandbox.Network == jobs.NetworkFull && len(a.cfg.Gates) > 0 {
		// Its port is one of the host's, as all that it listens on.
		door, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return failed(jobs.SandboxFailed, "open the way to the model API", err)
		}
		defer door.Close()
		in.door, in.gate = door, door.Addr().String()
	}
	launch, err := a.launch(in, adapter)
	if err != nil {
		return err
	}
	plan, err := adapter.Launch(launch)
	if err != nil {
		return failed(jobs.AgentMissing, "plan the agent's start", err)
	}
	about := adapter.About()
	way := a.gateTo(about.API)
	if about.API != "" && a.offline() { // by the worker's policy
		return ended(jobs.InvalidJob, "agent %s needs the %s API, and preset offline has no way to it", about.Name, about.API)
	}
	if about.API != "" && way == nil {
		return ended(jobs.Unauthorized, "the worker has no key for the %s API, which agent %s needs: set %s_API_KEY in its environment", about.API, about.Name, strings.ToUpper(about.API))
	}
	spec, err := a.spec(in, plan, way != nil)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	run := &agentRun{attempt: a, decoder: adapter.Decoder(launch), end: end, keepStdin: plan.KeepStdin, way: way}
	defer func() { a.talk.heard(run.decoder.Total()) }()
	return run.wait(ctx, in, spec, plan)
}

// An agentRun joins one agent process to the session's events.
type agentRun struct {
	*attempt
	end       context.CancelCauseFunc
	keepStdin bool
	process   *sandbox.Process
	way       *gate.Gate  // out of the jail; nil: there is none
	silence   *time.Timer // fires after idle_timeout without a line

	mu      sync.Mutex
	decoder agent.Decoder
	state   agent.State
	over    *time.Timer // set once the agent is idle: it must exit now
	hung    atomic.Bool // it did not
}

// wait runs the agent to its end. Whatever happens, nothing of it is alive
// when wait returns, and every line it wrote is recorded.
func (r *agentRun) wait(ctx context.Context, in jail, spec sandbox.Spec, plan agent.Plan) error {
	stdout, stdoutIn := io.Pipe()
	stderr, stderrIn := io.Pipe()
	p, err := r.start(ctx, in, spec, sandbox.Streams{Stdout: stdoutIn, Stderr: stderrIn, StdinPipe: true})
	if err != nil {
		return err
	}
	defer r.release("jail", "cleanup", func() error { return p.Close(context.WithoutCancel(ctx)) })
	r.process = p
	idle := time.Duration(r.job.IdleTimeout)
	r.silence = time.AfterFunc(idle, r.silent)
	defer r.silence.Stop()

	var readers, others errgroup.Group
	readers.Go(func() error { return r.read(stdout, agent.Stdout) })
	readers.Go(func() error { return r.read(stderr, agent.Stderr) })
	gated, closeGate := context.WithCancel(ctx)
	doors := p.Listeners()
	if in.door != nil {
		doors = []net.Listener{in.door}
	}
	others.Go(func() error { return r.gate(gated, doors) })
	others.Go(func() error { r.say(plan.Stdin); return nil })

	exit, err := p.Wait()
	_, _ = stdoutIn.Close(), stderrIn.Close() // the readers see the end; closing a pipe cannot fail
	unread := readers.Wait()
	closeGate()
	if broken := others.Wait(); err == nil {
		err = broken
	}
	return r.verdict(ctx, exit, err, unread)
}

// verdict records how the process ended and says what that means.
func (r *agentRun) verdict(ctx context.Context, exit sandbox.Exit, errs ...error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over != nil {
		r.over.Stop()
	}
	if r.hung.Load() {
		r.events.put(jobs.NewEvent(jobs.HangDetected, hang{What: "no exit after the last turn", Seconds: exitGrace.Seconds()}))
	}
	signal := ""
	if exit.Signal != 0 {
		signal = exit.Signal.String()
	}
	event, end := r.decoder.Exit(exit.Code, signal)
	r.events.put(event)
	if r.cfg.Hooks.Exited != nil {
		r.cfg.Hooks.Exited(r.rec, exitClass(exit))
	}
	limit := r.reached("the agent", exit)
	blamed := limit != nil && end.Outcome != jobs.Success && slices.Contains(unexplained, end.Reason)
	r.noteLimits("the agent", exit)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, err := range errs {
		if err != nil {
			return failed(jobs.SandboxFailed, "run the agent", err)
		}
	}
	if end.Outcome == jobs.Success {
		return nil
	}
	if blamed {
		return limit
	}
	return &endedError{end}
}

func exitClass(exit sandbox.Exit) string {
	switch {
	case slices.Contains(exit.Reached, sandbox.FeatureMemory):
		return "oom"
	case exit.Stopped:
		return "stopped"
	case exit.Signal != 0:
		return "signal"
	case exit.Code != 0:
		return "nonzero"
	}
	return "ok"
}

// read carries every line of one stream to the events.
func (r *agentRun) read(stream *io.PipeReader, name string) error {
	err := agent.ReadLines(stream, name, agent.MaxLine, func(line agent.Line) error {
		r.silence.Reset(time.Duration(r.job.IdleTimeout))
		r.line(line)
		return nil
	})
	// Whoever writes must never wait for a reader that has gone.
	stream.CloseWithError(err)
	return err
}

func (r *agentRun) line(line agent.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.decoder.Line(line)
	r.events.putOutput(read.Events...)
	r.turns(read.Events)
	if len(read.Reply) > 0 {
		r.write(read.Reply)
	}
	if read.Hopeless != "" {
		r.end(ended(read.Hopeless, "the agent tries on, but it cannot succeed: %s", jobs.Reasons[read.Hopeless].Advice))
	}
	r.state = read.State
	if read.State == agent.Idle && r.keepStdin && r.over == nil {
		r.closeStdin()
	}
}

func (r *agentRun) turns(events []jobs.Event) {
	for _, e := range events {
		if e.Kind == jobs.TurnEnded && r.cfg.Hooks.Turn != nil {
			r.cfg.Hooks.Turn(r.rec)
		}
	}
}

// silent ends an agent that has said nothing for too long. One whose turn is
// over and that only waits for what it left running has done its work.
func (r *agentRun) silent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == agent.Background && r.over == nil {
		r.closeStdin()
		return
	}
	r.end(errIdle)
}

// closeStdin tells the agent that nothing more will be asked, and bounds how
// long it may take to exit.
func (r *agentRun) closeStdin() {
	_ = r.process.Stdin().Close() // an agent that has gone already is no error
	r.over = time.AfterFunc(exitGrace, func() {
		r.hung.Store(true)
		_ = r.process.Stop(context.Background()) // bounded by the jail's grace; Wait reports what failed
	})
}

type hang struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
}

// say writes the first input. An agent that takes more keeps its stdin.
func (r *agentRun) say(lines [][]byte) {
	r.write(lines)
	if !r.keepStdin {
		_ = r.process.Stdin().Close() // likewise
	}
}

// write writes lines to the agent. That it does not read them, or has gone,
// shows in how it ends.
func (r *agentRun) write(lines [][]byte) {
	for _, line := range lines {
		if _, err := r.process.Stdin().Write(append(slices.Clip(line), '\n')); err != nil {
			return
		}
	}
}
