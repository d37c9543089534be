// Package opencode runs opencode in one of two ways. In a job that is not interactive a process
// runs one prompt: the prompt goes in on stdin, events come out as JSON lines, and the
// process ends with the last step. An interactive job gets its server for the Agent
// Client Protocol; see package acp.
//
// The gate must lead to the Anthropic API: the models are those of the program's
// provider "anthropic". Settings, plugins and servers of the repository are not read,
// because they would run without being asked for.
//
// The program asks for no permission, because the jail decides what it may do, unless a
// person sets its mode "ask", which is an agent of its settings.
//
// The program retries an API that fails without saying so; idle_timeout ends that.
package opencode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/acp"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/capsule"
)

// An Adapter starts and decodes opencode.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{
		Name: "opencode", Protocol: "opencode", Install: "npm install -g opencode-ai", OneShot: true,
		Conversation: capsule.Files{Paths: []capsule.Pattern{".local/share/opencode/opencode.db"}},
		Package: agentstore.Package{
			// Of the two for x64 the first one runs on every processor.
			Name: "opencode-ai", Program: "opencode", Native: []string{"opencode-*-baseline/bin/opencode", "opencode-*/bin/opencode"},
		},
		Abilities: agent.Abilities{
			Interactive: true, Interrupt: true, Resume: true, Model: true, Effort: true, Tokens: true, Cost: true,
			Images: true, Instructions: true, Skills: true, MCPServers: true, API: "anthropic",
		},
	}
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if l.Session == "" || l.ID == "" {
		return agent.Plan{}, fmt.Errorf("agent opencode: a launch needs a job and a session")
	}
	p := agent.Plan{
		Env: slices.Concat(l.Env(), l.GateEnv(), environment, []string{
			"OPENCODE_CONFIG_CONTENT=" + configOf(l), preload + "=" + path.Join(l.Files, guardFile),
		}),
		Files: append(l.PlanFiles(), agent.File{Path: guardFile, Content: []byte(guard)}), Mounts: l.Program.Mounts,
	}
	if l.SkillsDir() != "" {
		// Else a skill of the repository may replace the job's of the same name.
		p.Env = append(p.Env, "OPENCODE_DISABLE_EXTERNAL_SKILLS=1")
	}
	if l.Job.Agent.Interactive {
		p.Args = slices.Concat(l.Program.Command("opencode"), []string{"acp"}, l.Job.Agent.Args)
		p.Stdin, p.KeepStdin = [][]byte{acp.Hello()}, true
		return p, nil
	}
	args := []string{"run", "--format", "json", "--auto"}
	if l.Resume != "" {
		args = append(args, "--session", l.Resume)
	} else {
		args = append(args, "--title", l.ID) // otherwise the program asks a model for a title
	}
	if model := modelOf(l); model != "" {
		args = append(args, "--model", model)
	}
	if effort := l.Job.Agent.Effort; effort != "" {
		args = append(args, "--variant", effort)
	}
	p.Args = slices.Concat(l.Program.Command("opencode"), args, l.Job.Agent.Args)
	// As an argument it could not be longer than 128 KiB.
	p.Stdin = [][]byte{[]byte(l.FirstPrompt())}
	return p, nil
}

var environment = []string{
	// No contact with anything but the model.
	"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
	"OPENCODE_DISABLE_SHARE=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
	// The repository's settings, and its plugins, which that variable leaves.
	"OPENCODE_DISABLE_PROJECT_CONFIG=1", "OPENCODE_PURE=1",
}

// The program imports plugins of the repository whatever these variables say. So its runtime, Bun,
// is given a script that has each file that is not the program's own imported as an empty one.
const (
	preload   = "BUN_INSPECT_PRELOAD"
	guardFile = "opencode.js"
	guard     = `delete process.env.` + preload + ` // else a command that runs Bun has it
Bun.plugin({ name: "penstock", setup(build) {
  build.onLoad({ filter: /^(?!\/\$bunfs\/)/ }, () => ({ contents: "", loader: "js" }))
} })
`
)

// asking is the agent of the settings that asks before it does more than look. It is one of the
// modes of an interactive job.
var asking = map[string]any{
	"mode": "primary", "description": "Asks for permission.",
	// The last rule that fits counts, and JSON has "*" first.
	"permission": map[string]string{"*": "ask", "glob": "allow", "grep": "allow", "list": "allow", "read": "allow", "todowrite": "allow"},
}

// modelOf is the model of a job.
func modelOf(l agent.Launch) string { return fullModel(l.Job.Agent.Model) }

// fullModel is a model with its provider, as the program expects it.
func fullModel(model string) string {
	if model == "" || strings.Contains(model, "/") {
		return model
	}
	return "anthropic/" + model
}

// configOf points the one provider to the gate. It names the model, because the
// program does not know models that are newer than itself.
func configOf(l agent.Launch) string {
	provider := map[string]any{}
	if l.Gate != "" {
		provider["options"] = map[string]string{"baseURL": l.Gate + "/v1", "apiKey": l.Key}
	}
	if model := modelOf(l); strings.HasPrefix(model, "anthropic/") {
		provider["models"] = map[string]any{path.Base(model): map[string]any{}}
	}
	config := map[string]any{
		"autoupdate": false, "share": "disabled", "snapshot": false, "permission": "allow",
		// The title of a conversation would be a model call of its own.
		"agent":             map[string]any{"ask": asking, "title": map[string]any{"disable": true}},
		"enabled_providers": []string{"anthropic"},
		"provider":          map[string]any{"anthropic": provider},
	}
	if model := modelOf(l); model != "" && l.Job.Agent.Interactive {
		config["model"] = model // otherwise it is an argument
	}
	if servers := l.MCPServers(); len(servers) > 0 && !l.Job.Agent.Interactive { // then they come with the session
		local := map[string]any{}
		for _, s := range servers {
			local[s.Name] = map[string]any{"type": "local", "command": append([]string{s.Command}, s.Args...), "enabled": true}
		}
		config["mcp"] = local
	}
	if file := l.InstructionsFile(); file != "" {
		config["instructions"] = []string{file}
	}
	if dir := l.SkillsDir(); dir != "" {
		config["skills"] = map[string]any{"paths": []string{dir}}
	}
	return string(decode.JSON(config))
}

// outputLine is any line of opencode run --format json.
type outputLine struct {
	Type    string   `json:"type"`
	Session string   `json:"sessionID"`
	Part    linePart `json:"part"`
	Error   struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
			Status  int    `json:"statusCode"`
		} `json:"data"`
	} `json:"error"`
}

type linePart struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Text   string `json:"text"`
	Tool   string `json:"tool"`
	Call   string `json:"callID"`
	Reason string `json:"reason"`
	State  struct {
		Status   string          `json:"status"`
		Title    string          `json:"title"`
		Input    json.RawMessage `json:"input"`
		Output   string          `json:"output"`
		Error    string          `json:"error"`
		Metadata struct {
			Exit   *int   `json:"exit"`
			File   string `json:"filepath"`
			Exists *bool  `json:"exists"`
		} `json:"metadata"`
	} `json:"state"`
	Tokens struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
	Cost float64 `json:"cost"`
}

// decoder decodes one run of opencode. A turn is open from its first step to
// the step that calls no tool.
type decoder struct {
	decode.Turns
	usage  jobs.Usage // of the turn
	cost   float64
	answer string // the last text: the turn's result
}

// Decoder implements [agent.Adapter].
func (Adapter) Decoder(l agent.Launch) agent.Decoder {
	if l.Job.Agent.Interactive {
		return acp.NewDecoder(l, acp.Options{Name: "opencode", Model: modelOf(l), FullModel: fullModel, Subagents: "task"})
	}
	return &decoder{Turns: decode.Turns{Name: "opencode", Sum: agent.Total{Session: l.Resume, Model: modelOf(l)}}}
}

// Line implements [agent.Decoder].
func (d *decoder) Line(line agent.Line) agent.Read {
	return d.Decode(line, func(object json.RawMessage, r *agent.Read) event.AgentRaw {
		var out outputLine
		_ = json.Unmarshal(object, &out) // fields of an unexpected type stay zero
		d.read(out, r)
		return event.AgentRaw{Type: out.Type, Subtype: out.Part.Type}
	})
}

func (d *decoder) read(out outputLine, r *agent.Read) {
	d.Sum.Session = cmp.Or(out.Session, d.Sum.Session)
	switch out.Type {
	case "step_start":
		d.step(r)
	case "text":
		d.answer = out.Part.Text
		r.Add(event.Message{Role: "assistant", Text: out.Part.Text, Message: out.Part.ID})
	case "reasoning":
		r.Add(event.Thought{Role: "assistant", Text: out.Part.Text, Message: out.Part.ID})
	case "tool_use":
		addTool(out.Part, r)
	case "step_finish":
		d.finish(out.Part, r)
	case "error":
		message := wording.First(out.Error.Data.Message, out.Error.Name)
		d.End(event.TurnEnded{
			Status: "error", Reason: out.Error.Name, Errors: []string{message}, HTTP: out.Error.Data.Status,
			Usage: d.usage, UsageScope: "turn", CostUSD: d.cost, CostScope: "turn",
		}, reasonFor(out.Error.Name, out.Error.Data.Status), r)
	}
}

// reasonFor classifies an error by the program's name for it, and by the answer of
// the model API.
func reasonFor(name string, status int) jobs.Reason {
	switch name {
	case "ProviderAuthError":
		return jobs.Unauthorized
	case "ProviderModelNotFoundError":
		return jobs.ModelNotFound
	}
	return decode.HTTPReason(status)
}

func (d *decoder) step(r *agent.Read) {
	if d.Turn == 0 {
		r.Add(event.SessionStarted{Session: d.Sum.Session, Model: d.Sum.Model})
	}
	if !d.Open {
		d.usage, d.cost, d.answer = jobs.Usage{}, 0, ""
		d.Begin(r)
		return
	}
	r.Add(event.StateChanged{State: "running"})
}

// addTool reports a tool call, which is over when its line arrives.
func addTool(part linePart, r *agent.Read) {
	s := part.State
	tool := event.Tool{Call: part.Call, Name: part.Tool, Kind: toolKinds[part.Tool], Title: wording.Short(s.Title, 120), Input: s.Input}
	if tool.Kind == "" {
		tool.Kind = "other"
	}
	r.Add(event.ToolStarted(tool))
	ok := s.Status == "completed"
	r.Add(event.ToolEnded{
		Call: part.Call, Name: part.Tool, Kind: tool.Kind, OK: &ok, Output: cmp.Or(s.Output, s.Error), ExitCode: s.Metadata.Exit,
	})
	if ok && tool.Kind == "edit" && s.Metadata.File != "" {
		change := "update"
		if s.Metadata.Exists != nil && !*s.Metadata.Exists {
			change = "create"
		}
		r.Add(event.FileChanged{Path: s.Metadata.File, Change: change, Call: part.Call})
	}
}

var toolKinds = map[string]string{
	"bash": "execute", "write": "edit", "edit": "edit", "patch": "edit", "multiedit": "edit", "read": "read", "list": "read",
	"glob": "search", "grep": "search", "webfetch": "fetch", "task": "agent", "todowrite": "plan", "todoread": "plan",
}

// finish closes a step, and also the turn unless the model still gets a tool's result.
func (d *decoder) finish(part linePart, r *agent.Read) {
	t := part.Tokens
	used := jobs.Usage{Input: t.Input, Output: t.Output + t.Reasoning, CacheRead: t.Cache.Read, CacheWrite: t.Cache.Write}
	d.usage, d.Sum.Usage = d.usage.Add(used), d.Sum.Usage.Add(used)
	d.cost, d.Sum.CostUSD = jobs.AddUSD(d.cost, part.Cost), jobs.AddUSD(d.Sum.CostUSD, part.Cost)
	turn := event.TurnEnded{
		Status: "ok", Reason: part.Reason, Result: d.answer, Usage: d.usage, UsageScope: "turn", CostUSD: d.cost, CostScope: "turn",
	}
	switch part.Reason {
	case "tool-calls":
		r.Add(event.Usage{Scope: "call", Tokens: event.Tokens{Usage: new(used)}})
	case "stop":
		d.End(turn, "", r)
	default: // the answer was cut off
		turn.Status, turn.Errors = "limit", []string{"the model's answer was cut off: " + part.Reason}
		d.End(turn, jobs.AgentFailed, r)
	}
}
