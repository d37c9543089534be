package recording

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A Request is a run to record.
type Request struct {
	Agents    *agent.Agents
	Known     func(agent.Config) *agent.Agents // those without settings
	Agent     string
	Described *agent.Custom // as in [About]
	Program   agent.Program
	Version   string
	Job       Job
	Jail      harness.Jail
	// Gate leads to a real model. Nil: the model is a script.
	Gate *gate.Gate
	// Secrets are values that are not recorded, by name.
	Secrets map[string]string
}

// maxRecorded bounds a transcript: a recording is compared line by line.
const maxRecorded = 4000

// A LongError reports a run that has too many lines for a recording.
type LongError struct{ Lines int }

func (e *LongError) Error() string {
	return fmt.Sprintf("the run has %d lines, and a recording has at most %d", e.Lines, maxRecorded)
}

// Record runs the agent once, and returns what it and its adapter said. How the run ended is part
// of the recording: a run that fails is recorded, too.
func Record(ctx context.Context, r Request) (rec Recording, err error) {
	adapter, err := r.Agents.Get(r.Agent)
	if err != nil {
		return rec, err
	}
	dir, err := os.MkdirTemp("", "penstock-agent-record-")
	if err != nil {
		return rec, err
	}
	defer func() { err = errors.Join(err, disk.RemoveAll(dir)) }() // an agent may have closed directories in it
	rec.About = About{Agent: r.Agent, Version: r.Version, Program: words(r.Program.Args), Job: r.Job}
	if r.Described != nil {
		described := *r.Described
		described.Env, described.Command = nil, words(described.Command)
		if len(described.Command) > 0 && !filepath.IsAbs(r.Described.Command[0]) {
			described.Command[0] = r.Described.Command[0]
		}
		rec.Described = &described
	}
	workspace, home := filepath.Join(dir, "workspace"), filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(workspace, 0o700), os.Mkdir(home, 0o700)); err != nil {
		return rec, err
	}
	l := rec.launch(r.Program)
	l.Cwd = workspace
	way, end, err := r.way(ctx, adapter.About(), l.Session)
	if err != nil {
		return rec, err
	}
	defer end()
	wire := &wire{}
	talk := &harness.Conversation{Home: home, Say: slices.Clone(r.Job.Say), OnLine: wire.add}
	run, err := r.Jail.Run(ctx, adapter, l, way, talk)
	if err != nil {
		return rec, err
	}
	plan, err := adapter.Launch(harness.Inside(rec.launch(r.Program), way.Gate != nil))
	if err != nil {
		return rec, err
	}
	return r.finish(rec, wire, plan, run)
}

// finish normalizes what was seen, and has the adapter make events of it.
func (r Request) finish(rec Recording, w *wire, plan agent.Plan, run harness.Run) (Recording, error) {
	if len(w.lines) > maxRecorded {
		return rec, &LongError{len(w.lines)}
	}
	secrets := map[string]string{"key": harness.JailKey}
	for name, value := range r.Secrets {
		secrets[name] = value
	}
	own := append(slices.Clone(plan.Args), session)
	for _, line := range plan.Stdin {
		own = append(own, string(line))
	}
	n := newNormalizer(secrets, r.Program.Args, own...)
	var b strings.Builder
	for _, l := range w.lines {
		b.WriteString(encode(l.way, n.line(l.way, l.text)) + "\n")
	}
	fmt.Fprintf(&b, `{"exit":%d,"signal":%q}`+"\n", run.Code, run.Signal)
	rec.Transcript = b.String()
	for _, word := range plan.Args {
		rec.Arguments = append(rec.Arguments, string(n.line("in", []byte(word))))
	}
	var err error
	rec.Events, err = rec.replay(r.Known)
	return rec, err
}

// way is the agent's way to its model, and what closes it.
func (r Request) way(ctx context.Context, about agent.About, id string) (harness.Gated, func(), error) {
	switch {
	case about.API == "":
		return harness.Gated{}, func() {}, nil
	case r.Gate != nil:
		return harness.Gated{Gate: r.Gate, Session: gate.NewSession(id, harness.JailKey, gate.Limits{})}, func() {}, nil
	}
	url, closeModel, err := contract.Serve(ctx, agenttest.New(agenttest.Script{Steps: []agenttest.Step{r.act}}))
	if err != nil {
		return harness.Gated{}, nil, err
	}
	g, err := gate.New(gate.Config{API: about.API, Upstream: url, Key: harness.RealKey})
	if err != nil {
		closeModel()
		return harness.Gated{}, nil, err
	}
	return harness.Gated{Gate: g, Session: gate.NewSession(id, harness.JailKey, gate.Limits{})}, func() {
		_ = g.Close() // nothing is left to lose
		closeModel()
	}, nil
}

// The tokens of each answer of the scripted model: the same whatever the request has.
const input, output = 20000, 50

// act is the scripted model: each turn of the agent runs the command once.
func (r Request) act(req agenttest.Request) agenttest.Reply {
	reply := agenttest.Reply{Text: r.Job.Answer}
	if !req.Returned && r.Job.Command != "" {
		reply = contract.Shell(req, reply, r.Job.Command)
	}
	reply.Input, reply.Output = input, output
	return reply
}

// A wire has the lines of a run.
type wire struct {
	lines []wireLine
}

type wireLine struct {
	way  string
	text []byte
}

func (w *wire) add(way string, text []byte) {
	w.lines = append(w.lines, wireLine{way, slices.Clone(text)})
}
