// Package codex runs Codex CLI, in one of two ways. In a job that is not interactive a process
// is one turn: the prompt goes in on stdin, and events come out as JSON lines. An
// interactive job gets the app server, which keeps running between turns and asks
// questions; see appServer.
//
// The gate must lead to the OpenAI API.
package codex

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/capsule"
)

// retries is how often Codex retries a model call.
const retries = 4

// An Adapter starts and decodes Codex CLI.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{
		Name: "codex", Protocol: "codex", Install: "npm install -g @openai/codex",
		Package: agentstore.Package{
			Name: "@openai/codex", Program: "codex", Native: []string{"@openai/codex-*/vendor/*/bin/codex"},
		},
		Conversation: capsule.Files{Paths: []capsule.Pattern{".codex/sessions/*/*/*/rollout-*-{id}.jsonl"}},
		OneShot:      true,
		Abilities: agent.Abilities{
			Interactive: true, Questions: true, Interrupt: true, Resume: true, Model: true, Effort: true, Tokens: true, Terminals: true,
			Images: true, Instructions: true, Skills: true, MCPServers: true, API: "openai",
		},
	}
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if l.Session == "" || l.ID == "" {
		return agent.Plan{}, fmt.Errorf("agent codex: a launch needs a job and a session")
	}
	env := l.Env()
	if l.Gate != "" {
		env = append(env, keyVariable+"="+l.Key, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
	}
	p := agent.Plan{Env: env, Files: l.PlanFiles(), Mounts: l.Program.Mounts}
	if l.Job.Agent.Interactive {
		p.Args = l.WithSkills(skillsDir, slices.Concat(l.Program.Command("codex"), serverArguments(l), l.Job.Agent.Args))
		p.Stdin, p.KeepStdin = [][]byte{hello(jsonrpc.NewClient(""))}, true
		return p, nil
	}
	args := []string{"exec"}
	if l.Resume != "" {
		args = append(args, "resume")
	}
	args = slices.Concat(args, execArguments(l), l.Job.Agent.Args)
	if l.Resume != "" {
		args = append(args, l.Resume)
	}
	p.Args = l.WithSkills(skillsDir, slices.Concat(l.Program.Command("codex"), args, []string{"-"}))
	// The prompt may have many lines. It ends where stdin does.
	p.Stdin = [][]byte{[]byte(l.FirstPrompt())}
	return p, nil
}

// skillsDir is where the program reads its user's skills. In .codex/skills it has those of its own.
const skillsDir = ".agents/skills"

// keyVariable is the variable from which our provider entry takes its key.
const keyVariable = "PENSTOCK_GATE_KEY"

func execArguments(l agent.Launch) []string {
	args := []string{
		"--json",
		// The jail decides what the agent may do. The program's own sandbox does not
		// work in every jail.
		"--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check",
	}
	if l.Job.Agent.Model != "" {
		args = append(args, "-m", l.Job.Agent.Model)
	}
	return append(args, settings(l)...)
}

// settings are common to both ways. They leave it to the program that it does not trust the workspace:
// told so, versions before 0.169.0 would not start the servers that its settings name, but no version
// would read its AGENTS.md.
func settings(l agent.Launch) []string {
	args := []string{
		// No contact with anything but the model.
		"-c", "analytics.enabled=false", "-c", `otel.metrics_exporter="none"`, "-c", "check_for_update_on_startup=false",
		"--disable", "plugins", "--disable", "apps",
		// Without this the program waits for ever for an API that it cannot reach.
		"--disable", "unbounded_connection_retries",
	}
	if effort := l.Job.Agent.Effort; effort != "" {
		args = append(args, "-c", "model_reasoning_effort="+strconv.Quote(effort))
	}
	// By default the program passes only a few variables to its MCP servers.
	serve := func(s agent.MCPServer, variables []string) {
		args = append(args, "-c", fmt.Sprintf(`mcp_servers.%s={command=%q,args=%s,env_vars=%s,tool_timeout_sec=60,default_tools_approval_mode="approve"}`,
			s.Name, s.Command, decode.JSON(s.Args), decode.JSON(variables)))
	}
	if l.Job.Agent.Terminals {
		name, serverArgs := l.TerminalServer()
		serve(agent.MCPServer{Name: name, Command: "penstock", Args: serverArgs}, []string{l.Variable})
	}
	for _, s := range l.MCPServers() {
		serve(s, l.MCPVariables())
	}
	if text := l.Job.Agent.Instructions; text != "" {
		// Text without control characters is quoted in TOML as it is in Go.
		args = append(args, "-c", "developer_instructions="+strconv.Quote(text))
	}
	if l.Gate == "" {
		return args
	}
	provider := fmt.Sprintf(`model_providers.penstock={name="penstock",base_url=%s,env_key=%q,wire_api="responses",request_max_retries=%d,stream_max_retries=%d}`,
		strconv.Quote(l.Gate+"/v1"), keyVariable, retries, retries)
	args = append(args, "-c", `model_provider="penstock"`, "-c", provider)
	if !slices.ContainsFunc(l.Job.Agent.Args, func(arg string) bool { return strings.HasPrefix(arg, "web_search") }) {
		// Web search runs at the provider: a way out of the jail, which the gate
		// refuses.
		args = append(args, "-c", `web_search="disabled"`)
	}
	return args
}

// execLine is any line of codex exec --json.
type execLine struct {
	Type    string   `json:"type"`
	Thread  string   `json:"thread_id"`
	Message string   `json:"message"`
	Item    execItem `json:"item"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage struct {
		Input      int64 `json:"input_tokens"`
		Cached     int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"`
	} `json:"usage"`
}

type execItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Message   string          `json:"message"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	ExitCode  *int            `json:"exit_code"`
	Status    string          `json:"status"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Query     string          `json:"query"`
	Prompt    string          `json:"prompt"` // of a subagent
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Items     json.RawMessage `json:"items"`
	Parent    string          `json:"-"` // the thread of a subagent
	Changes   []fileChange    `json:"changes"`
}

type fileChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}
