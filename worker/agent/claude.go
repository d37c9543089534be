package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs/control"
)

// claudeRetries is how often Claude Code retries a model call before the turn fails.
// Its own default of ten takes minutes; the pool has attempts of its own, and runs
// other jobs between them.
const claudeRetries = 6

// claude runs Claude Code, 2.1 and later, over pipes: JSON lines in both
// directions. A prompt given as an argument would be ignored there, and on a
// terminal the process would end after its first turn.
//
// The repository's own settings, hooks and servers are not read, because
// they would run without being asked for; this also leaves out its CLAUDE.md.
// A job that trusts its repository says so in agent.args:
// ["--setting-sources", "user,project"].
type claude struct{}

func (claude) About() About {
	return About{
		Name: "claude", Protocol: "claude", Install: "npm install -g @anthropic-ai/claude-code",
		Conversation: ".claude/projects/*/{id}.jsonl",
		Abilities: Abilities{
			Interactive: true, Questions: true, Interrupt: true, Resume: true, Model: true, MaxTurns: true,
			Tokens: true, Cost: true, Terminals: true, Images: true, API: "anthropic",
		},
	}
}

func (claude) Launch(l Launch) (Plan, error) {
	if l.Session == "" || l.ID == "" {
		return Plan{}, fmt.Errorf("agent claude: a launch needs a job and a session")
	}
	return Plan{
		Args:      slices.Concat(l.Program.command("claude"), claudeArgs(l), l.Job.Agent.Args),
		Env:       slices.Concat(l.env(), l.gateEnv(), claudeEnv),
		Stdin:     [][]byte{claudeUser(l.prompt(), l.promptID(), l.Images...)},
		KeepStdin: true,
		Files:     l.files(),
		Mounts:    l.Program.Mounts,
	}, nil
}

var claudeEnv = []string{
	// No contact with anything but the base URL: the jail reaches nothing else.
	"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	"DISABLE_AUTOUPDATER=1",
	// A result does not mean that the turn is over; this event does.
	"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS=1",
	"CLAUDE_CODE_MAX_RETRIES=" + strconv.Itoa(claudeRetries),
	// The jail is a sandbox; without this variable the program refuses to run as root
	// in it.
	"IS_SANDBOX=1",
}

func claudeArgs(l Launch) []string {
	args := []string{
		"-p", "--output-format", "stream-json", "--input-format", "stream-json", "--verbose",
		// The jail decides what the agent may do. A question would never be answered.
		"--dangerously-skip-permissions",
		// Questions come as requests on stdout, and are answered on stdin.
		"--permission-prompt-tool", "stdio", "--replay-user-messages",
	}
	if !hasFlag(l.Job.Agent.Args, "--setting-sources") {
		args = append(args, "--setting-sources", "user")
	}
	own := hasFlag(l.Job.Agent.Args, "--mcp-config") || hasFlag(l.Job.Agent.Args, "--strict-mcp-config")
	if !own {
		args = append(args, "--strict-mcp-config")
	}
	if !own || l.Job.Agent.Terminals {
		args = append(args, "--mcp-config", claudeServers(l))
	}
	if l.Resume != "" {
		args = append(args, "--resume", l.Resume)
	} else {
		args = append(args, "--session-id", l.claudeSession())
	}
	if a := l.Job.Agent; a.Model != "" {
		args = append(args, "--model", a.Model)
	}
	if n := l.Job.Agent.MaxTurns; n > 0 {
		args = append(args, "--max-turns", strconv.Itoa(n))
	}
	if usd := l.Job.Budget.USD; usd > 0 {
		args = append(args, "--max-budget-usd", strconv.FormatFloat(usd, 'f', -1, 64))
	}
	return args
}

// claudeServers are the MCP servers that the job wants. They get their environment from
// the program, which waits for them before its first turn.
func claudeServers(l Launch) string {
	servers := map[string]any{}
	if l.Job.Agent.Terminals {
		servers[serverName] = map[string]any{"command": "penstock", "args": terminalServer, "alwaysLoad": true}
	}
	return string(jsonLine(map[string]any{"mcpServers": servers}))
}

func hasFlag(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
}

// claudeSession is the session's own id for the attempt that opens the session, and
// another id for each later attempt: the program refuses an id that exists.
func (l Launch) claudeSession() string {
	if l.ID == l.Session && l.Attempt <= 1 && uuid.Validate(l.Session) == nil {
		return l.Session
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("session/"+l.Session+"/"+l.ID+"/"+strconv.Itoa(l.Attempt))).String()
}

type claudeInput struct {
	Type    string `json:"type"`
	Message struct {
		Role    string `json:"role"`
		Content any    `json:"content"` // a text, or a list of blocks
	} `json:"message"`
	UUID           string `json:"uuid,omitempty"`
	ClientComposed bool   `json:"client_composed"`
}

// claudeUser is the line that gives Claude a text and images. A malformed line ends the
// process, so no other code writes such lines.
func claudeUser(text, id string, images ...control.Image) []byte {
	// A slash at the beginning would make the text a command of the program;
	// client_composed prevents that in newer versions only.
	if strings.HasPrefix(strings.TrimSpace(text), "/") {
		text = "The request is:\n\n" + text
	}
	in := claudeInput{Type: "user", UUID: id, ClientComposed: true}
	in.Message.Role, in.Message.Content = "user", text
	if len(images) > 0 {
		in.Message.Content = claudeContent(text, images)
	}
	return jsonLine(in)
}

// claudeContent is a text and images as blocks. The model API refuses a block whose
// text is empty.
func claudeContent(text string, images []control.Image) []any {
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
