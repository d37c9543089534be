package contract

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/gate"
)

// The words by which prompts and answers are known again.
const (
	promptWord = "CONTRACT-PROMPT"
	firstWord  = "contract-one"
	nextWord   = "contract-two"
	lastWord   = "contract-three"
	answerWord = "contract-answer"
	ruleWord   = "contract-instructions"
	skillWord  = "contract-skills"
)

// models are those that agents are told to use. The scripted model has any name; the agents
// know some. An agent of protocol acp offers models of its own.
var models = map[string]string{"anthropic": "claude-sonnet-4-5", "openai": "gpt-5.5", "google": "gemini-2.5-flash"}

// Model is the model that an agent is told to use; empty: none.
func Model(about agent.About) string {
	if about.Protocol == "acp" {
		return ""
	}
	return models[about.API]
}

// A trial is the test of one agent.
type trial struct {
	about   agent.About
	adapter agent.Adapter
	program agent.Program
	jail    harness.Jail
	dir     string
	version string

	messages, unknown  map[string]bool // kinds of lines of all runs, and those without an event of their own
	prompted, searched *seen           // what the runs of earlier checks gave
	home               string          // of the first of them
	broken             error           // why there is no first one
}

// seen is what could be seen of one run.
type seen struct {
	harness.Run
	workspace string
	launch    agent.Launch // as the agent had it
	lines     []heard
	requests  []agenttest.Request
	meter     gate.Meter
}

// A task is one run that a check wants.
type task struct {
	launch func(l *agent.Launch) // changes the launch; may be nil
	jail   func(j *harness.Jail) // changes a copy of the jail; may be nil
	model  agenttest.Step
	with   *harness.Conversation // may be nil
	all    bool                  // the step answers requests without our prompt, too
	asks   bool                  // with answers what the agent asks permission for, which is granted else
	limits gate.Limits
}

// modelled says that there is a model between the agent and its answers.
func (t *trial) modelled() bool { return t.about.API != "" }

func prompt(word string) string { return promptWord + ": say " + word }

// run runs the agent once, against a model that answers each request of the agent by one step.
func (t *trial) run(ctx context.Context, k task) (*seen, error) {
	s, err := t.start(ctx, k)
	if s != nil {
		t.note(s)
	}
	return s, err
}

// start is run without what it notes, and can be called by several goroutines.
func (t *trial) start(ctx context.Context, k task) (*seen, error) {
	workspace, err := os.MkdirTemp(t.dir, "workspace-")
	if err != nil {
		return nil, err
	}
	id := jobs.NewID()
	l := agent.Launch{
		Job: jobs.Job{Prompt: prompt(firstWord), Agent: jobs.Agent{Name: t.about.Name}}.WithDefaults(),
		ID:  id, Session: id, Attempt: 1, Cwd: workspace, Program: t.program,
	}
	l.Job.Agent.Model = Model(t.about)
	if k.launch != nil {
		k.launch(&l)
	}
	if k.with == nil {
		k.with = &harness.Conversation{}
	}
	s := &seen{workspace: workspace, launch: harness.Inside(l, t.modelled())}
	k.with.Allow = l.Job.Agent.Interactive && !k.asks // in another job the adapter grants it
	k.with.OnLine = func(way string, text []byte) {
		if way == "out" || way == "err" {
			s.lines = append(s.lines, heard{way: way, text: slices.Clone(text)})
		}
	}
	jail := t.jail
	if k.jail != nil {
		k.jail(&jail)
	}
	if !t.modelled() {
		s.Run, err = jail.Run(ctx, t.adapter, l, harness.Gated{}, k.with)
		return s, err
	}
	on := promptWord
	if k.all {
		on = ""
	}
	model := agenttest.New(agenttest.Script{On: on, Steps: []agenttest.Step{k.model}}).Watch(skillWord)
	url, closeModel, err := Serve(ctx, model)
	if err != nil {
		return nil, err
	}
	defer closeModel()
	g, err := gate.New(gate.Config{API: t.about.API, Upstream: url, Key: harness.RealKey})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	session := gate.NewSession(l.Session, harness.JailKey, k.limits)
	s.Run, err = jail.Run(ctx, t.adapter, l, harness.Gated{Gate: g, Session: session}, k.with)
	s.requests, s.meter = model.Requests(), session.Meter()
	return s, err
}

// Serve serves the model on loopback, until the function that it returns is called.
func Serve(ctx context.Context, model http.Handler) (url string, end func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen for the scripted model: %w", err)
	}
	srv := &http.Server{Handler: model, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) }) // until it is closed; agents that cannot reach it say so
	return "http://" + l.Addr().String(), func() {
		_ = srv.Close() // nothing is left to lose
		serving.Wait()
	}, nil
}

// ended is an error unless a run has succeeded.
func (s *seen) ended() error {
	if s.End.Outcome == jobs.Success {
		return nil
	}
	return fmt.Errorf("it ended with %s", s.how())
}

// how says how a run ended.
func (s *seen) how() string {
	return fmt.Sprintf("%s (%s): %s", s.End.Outcome, s.End.Reason, s.End.Message)
}

// asked is the last request to the model whose last words contain a text; nil: there is none.
func (s *seen) asked(text string) *agenttest.Request {
	for i := len(s.requests) - 1; i >= 0; i-- {
		if strings.Contains(s.requests[i].Last, text) {
			return &s.requests[i]
		}
	}
	return nil
}

// answer is a model that ends each turn with a text.
func answer(agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: answerWord} }

// shells are the tools by which agents run commands, and the input that each wants.
var shells = map[string]func(command string) any{
	"Bash":              func(c string) any { return map[string]any{"command": c, "description": "run it"} },
	"bash":              func(c string) any { return map[string]any{"command": c, "description": "run it"} },
	"run_shell_command": func(c string) any { return map[string]any{"command": c, "description": "run it"} },
	"shell_command":     func(c string) any { return map[string]any{"command": c} },
	"exec_command":      func(c string) any { return map[string]any{"cmd": c} },
}

// Shell has the agent run commands at once, if it offers a known tool for that; else the model
// answers otherwise.
func Shell(r agenttest.Request, otherwise agenttest.Reply, commands ...string) agenttest.Reply {
	for _, name := range r.Tools {
		if input := shells[name]; input != nil {
			var reply agenttest.Reply
			for _, command := range commands {
				reply.Calls = append(reply.Calls, agenttest.Call{Name: name, Input: input(command)})
			}
			return reply
		}
	}
	return otherwise
}

func shell(r agenttest.Request, commands ...string) agenttest.Reply {
	return Shell(r, answer(r), commands...)
}

// hasShell is an error if the agent offered the model no known tool that runs commands.
func (s *seen) hasShell() error {
	for _, r := range s.requests {
		for _, name := range r.Tools {
			if shells[name] != nil {
				return nil
			}
		}
	}
	return untried("the agent offers no tool for commands that this test knows")
}
