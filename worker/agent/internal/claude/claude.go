// Package claude runs Claude Code, 2.1 and later, over pipes: JSON lines in both
// directions. A prompt given as an argument would be ignored there, and on a
// terminal the process would end after its first turn.
//
// The repository's own settings, hooks and servers are not read, because
// they would run without being asked for; this also leaves out its CLAUDE.md.
// A job that trusts its repository says so in agent.args:
// ["--setting-sources", "user,project"].
package claude

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/capsule"
)

// retries is how often Claude Code retries a model call before the turn fails.
// Its own default of ten takes minutes; the pool has attempts of its own, and runs
// other jobs between them.
const retries = 6

// An Adapter starts and decodes Claude Code.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{
		Name: "claude", Protocol: "claude", Install: "npm install -g @anthropic-ai/claude-code",
		Package: agentstore.Package{
			Name: "@anthropic-ai/claude-code", Program: "claude", Native: []string{"@anthropic-ai/claude-code-*/claude"},
		},
		Conversation: capsule.Files{Paths: []capsule.Pattern{".claude/projects/*/{id}.jsonl"}},
		Efforts:      efforts,
		Abilities: agent.Abilities{
			Interactive: true, Questions: true, Interrupt: true, Resume: true, Model: true, Effort: true, MaxTurns: true,
			Tokens: true, Cost: true, Terminals: true, Images: true, Instructions: true, Skills: true, MCPServers: true, API: "anthropic",
		},
	}
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if l.Session == "" || l.ID == "" {
		return agent.Plan{}, fmt.Errorf("agent claude: a launch needs a job and a session")
	}
	var first [][]byte
	if l.Mode != "" {
		first = append(first, setMode("launch", l.Mode))
	}
	return agent.Plan{
		Args:      l.WithSkills(".claude/skills", slices.Concat(l.Program.Command("claude"), arguments(l), l.Job.Agent.Args)),
		Env:       slices.Concat(l.Env(), l.GateEnv(), environment),
		Stdin:     append(first, userMessage(l.FirstPrompt(), l.PromptID(), l.Images...)),
		KeepStdin: true,
		Files:     l.PlanFiles(),
		Mounts:    l.Program.Mounts,
	}, nil
}

var environment = []string{
	// No contact with anything but the base URL: the jail reaches nothing else.
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	"DISABLE_AUTOUPDATER=1",
	// A result does not mean that the turn is over; this event does.
	"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1",
	"CLAUDE_CODE_MAX_RETRIES=" + strconv.Itoa(retries),
	// The jail is a sandbox; without this variable the program refuses to run as root
	// in it.
	"IS_SANDBOX=1",
}

func arguments(l agent.Launch) []string {
	args := []string{
		"-p", "--output-format", "stream-json", "--input-format", "stream-json", "--verbose",
		// The jail decides what the agent may do. A question would never be answered.
		"--dangerously-skip-permissions",
		// Questions come as requests on stdout, and are answered on stdin.
		"--permission-prompt-tool", "stdio", "--replay-user-messages",
	}
	if !l.HasFlag("--setting-sources") {
		args = append(args, "--setting-sources", "user")
	}
	own := l.HasFlag("--mcp-config") || l.HasFlag("--strict-mcp-config")
	if !own {
		args = append(args, "--strict-mcp-config")
	}
	if !own || l.Job.Agent.Terminals || len(l.Job.Agent.MCPServers) > 0 {
		args = append(args, "--mcp-config", mcpServers(l))
	}
	if file := l.InstructionsFile(); file != "" {
		args = append(args, "--append-system-prompt-file", file)
	}
	if l.Resume != "" {
		args = append(args, "--resume", l.Resume)
	} else {
		args = append(args, "--session-id", l.NewSession())
	}
	if a := l.Job.Agent; a.Model != "" {
		args = append(args, "--model", a.Model)
	}
	if effort := l.Job.Agent.Effort; effort != "" {
		args = append(args, "--effort", effort)
	}
	if n := l.Job.Agent.MaxTurns; n > 0 {
		args = append(args, "--max-turns", strconv.Itoa(n))
	}
	if usd := l.Job.Budget.USD; usd > 0 {
		args = append(args, "--max-budget-usd", strconv.FormatFloat(usd, 'f', -1, 64))
	}
	return args
}

// mcpServers are the MCP servers that the job wants. They get their environment from
// the program, which waits for them before its first turn.
func mcpServers(l agent.Launch) string {
	servers := map[string]any{}
	if l.Job.Agent.Terminals {
		name, args := l.TerminalServer()
		servers[name] = map[string]any{"command": "penstock", "args": args, "alwaysLoad": true}
	}
	for _, s := range l.MCPServers() {
		servers[s.Name] = map[string]any{"command": s.Command, "args": s.Args, "alwaysLoad": true}
	}
	return string(decode.JSON(map[string]any{"mcpServers": servers}))
}

type userLine struct {
	Type    string `json:"type"`
	Message struct {
		Role    string `json:"role"`
		Content any    `json:"content"` // a text, or a list of blocks
	} `json:"message"`
	UUID           string `json:"uuid,omitempty"`
	ClientComposed bool   `json:"client_composed"`
}

// userMessage is the line that gives Claude a text and images. A malformed line ends the
// process, so no other code writes such lines.
func userMessage(text, id string, images ...control.Image) []byte {
	// A slash at the beginning would make the text a command of the program;
	// client_composed prevents that in newer versions only.
	if strings.HasPrefix(strings.TrimSpace(text), "/") {
		text = "The request is:\n\n" + text
	}
	in := userLine{Type: "user", UUID: id, ClientComposed: true}
	in.Message.Role, in.Message.Content = "user", text
	if len(images) > 0 {
		in.Message.Content = contentBlocks(text, images)
	}
	return decode.JSON(in)
}

// contentBlocks is a text and images as blocks. The model API refuses a block whose
// text is empty.
func contentBlocks(text string, images []control.Image) []any {
	var blocks []any
	for _, i := range images {
		blocks = append(blocks, map[string]any{
			"type": "image", "source": map[string]any{"type": "base64", "media_type": i.Type, "data": i.Data},
		})
	}
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, map[string]string{"type": "text", "text": text})
	}
	return blocks
}
