package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/capsule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUnknownAgent(t *testing.T) {
	_, err := builtin.Agents(agent.Config{}).Get("clippy")
	unknown, ok := errors.AsType[*agent.UnknownAgentError](err)
	if !ok || unknown.Name != "clippy" || !slices.Contains(unknown.Known, "claude") || !slices.Contains(unknown.Known, "command") {
		t.Errorf("got %v", err)
	}
}

// keeps is an agent that keeps its conversation in these files.
func keeps(files capsule.Files) agent.Custom {
	return agent.Custom{Protocol: "acp", Command: []string{"/opt/mine"}, Conversation: files}
}

func TestCustomValidate(t *testing.T) {
	for _, tt := range []struct {
		name, field string
		c           agent.Custom
	}{
		{"mine", "", agent.Custom{Protocol: "claude"}},
		{"mine", "", agent.Custom{Protocol: "command", Command: []string{"run", "--all"}, API: "openai", Env: map[string]string{"A_1": "x"}}},
		{"mine", "agents.mine.protocol", agent.Custom{}},
		{"mine", "agents.mine.protocol", agent.Custom{Protocol: "clippy"}},
		{"claude", "agents.claude", agent.Custom{Protocol: "claude"}},
		{"My agent", "agents.My agent", agent.Custom{Protocol: "claude"}},
		{"mine", "agents.mine.command", agent.Custom{Protocol: "command"}},
		{"mine", "agents.mine.command[0]", agent.Custom{Protocol: "codex", Command: []string{"./codex"}}},
		{"mine", "agents.mine.command[1]", agent.Custom{Protocol: "codex", Command: []string{"codex", "\x00"}}},
		{"mine", "agents.mine.api", agent.Custom{Protocol: "claude", API: "openai"}},
		{"mine", "agents.mine.api", agent.Custom{Protocol: "command", Command: []string{"x"}, API: "psychic"}},
		{"mine", "", agent.Custom{Protocol: "acp", Command: []string{"x", "acp"}, API: "anthropic", Auth: "key"}},
		{"mine", "agents.mine.command", agent.Custom{Protocol: "acp"}},
		{"mine", "agents.mine.auth", agent.Custom{Protocol: "claude", Auth: "key"}},
		{"mine", "", keeps(capsule.Files{Paths: []capsule.Pattern{".mine/*/{id}.jsonl", ".mine/{id8}/**"}, Except: []capsule.Pattern{".mine/**"}})},
		{"mine", "agents.mine.conversation", agent.Custom{Protocol: "claude", Conversation: capsule.Files{Paths: []capsule.Pattern{"a"}}}},
		{"mine", "agents.mine.conversation.files", keeps(capsule.Files{Except: []capsule.Pattern{"a"}})},
		{"mine", "agents.mine.conversation.files[1]", keeps(capsule.Files{Paths: []capsule.Pattern{"a", "/home/a"}})},
		{"mine", "agents.mine.conversation.files[0]", keeps(capsule.Files{Paths: []capsule.Pattern{"~/a"}})},
		{"mine", "agents.mine.conversation.files[0]", keeps(capsule.Files{Paths: []capsule.Pattern{"a/../../b"}})},
		{"mine", "agents.mine.conversation.files[0]", keeps(capsule.Files{Paths: []capsule.Pattern{""}})},
		{"mine", "agents.mine.conversation.files[0]", keeps(capsule.Files{Paths: []capsule.Pattern{"**"}})},
		{"mine", "agents.mine.conversation.files[0]", keeps(capsule.Files{Paths: []capsule.Pattern{"a/**/b"}})},
		{"mine", "agents.mine.conversation.files[0]", keeps(capsule.Files{Paths: []capsule.Pattern{"a/{name}"}})},
		{"mine", "agents.mine.conversation.except[0]", keeps(capsule.Files{Paths: []capsule.Pattern{"a"}, Except: []capsule.Pattern{"a//b"}})},
		{"mine", "agents.mine.skills", agent.Custom{Protocol: "claude", Skills: ".claude/skills"}},
		{"mine", "agents.mine.skills", agent.Custom{Protocol: "acp", Command: []string{"x"}, Skills: "/root/skills"}},
		{"mine", "agents.mine.skills", agent.Custom{Protocol: "acp", Command: []string{"x"}, Skills: ".x/../skills"}},
		{"mine", "agents.mine.skills", agent.Custom{Protocol: "acp", Command: []string{"x"}, Skills: "a/b/c/d/e"}},
		{"mine", "", agent.Custom{Protocol: "acp", Command: []string{"x"}, Skills: ".config/my.agent/skills"}},
		{"mine", "agents.mine.mcp_config", agent.Custom{Protocol: "claude", MCPConfig: ".x/mcp.json"}},
		{"mine", "agents.mine.mcp_config", agent.Custom{Protocol: "acp", Command: []string{"x"}, MCPConfig: "/root/mcp.json"}},
		{"mine", "agents.mine.mcp_config", agent.Custom{Protocol: "acp", Command: []string{"x"}, MCPConfig: ".x/../mcp.json"}},
		{"mine", "", agent.Custom{Protocol: "acp", Command: []string{"x"}, MCPConfig: ".x/mcp-config.json"}},
		{"mine", "agents.mine.env", agent.Custom{Protocol: "claude", Env: map[string]string{"A B": "x"}}},
		{"mine", "agents.mine.env.URL", agent.Custom{Protocol: "acp", Command: []string{"x"}, Env: map[string]string{"URL": "{base_url}/v2"}}},
		{"mine", "agents.mine.env.KEY", agent.Custom{Protocol: "command", Command: []string{"x"}, Env: map[string]string{"KEY": "Bearer {api_key}"}}},
		{"mine", "", agent.Custom{Protocol: "acp", Command: []string{"x"}, Env: map[string]string{"MODEL": "{model:m}", "JSON": `{"key":{}}`}}},
		{"mine", "", agent.Custom{Protocol: "codex", Env: map[string]string{"URL": "{base_url}"}}},
		{"mine", "agents.mine.env.LD_PRELOAD", agent.Custom{Protocol: "claude", Env: map[string]string{"LD_PRELOAD": "x"}}},
	} {
		got := ""
		if wrong, ok := errors.AsType[*jobs.FieldError](builtin.Agents(agent.Config{}).Validate(tt.name, tt.c)); ok {
			got = wrong.Field
		}
		if got != tt.field {
			t.Errorf("%s %+v: named %q, want %q", tt.name, tt.c, got, tt.field)
		}
	}
}

// An agent of a settings file is started as its protocol's own is, with its
// program, its arguments before those, and its variables.
func TestCustom(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "fork")
	if err := os.WriteFile(program, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	agents := builtin.Agents(agent.Config{Path: dir, Custom: map[string]agent.Custom{
		"mine":  {Protocol: "claude", Command: []string{"fork", "--careful"}, Env: map[string]string{"B": "2", "A": "1"}},
		"other": {Protocol: "codex"},
		"tool":  {Protocol: "command", Command: []string{program, "-x"}, API: "openai"},
	}})
	if !slices.Equal(agents.Names(), []string{"acp", "claude", "codex", "command", "gemini", "mine", "opencode", "other", "tool"}) {
		t.Errorf("known are %v", agents.Names())
	}
	start := func(name string, found bool) (agent.Plan, agent.About) {
		t.Helper()
		adapter, err := agents.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		l := adaptertest.Launch(name)
		if found {
			if l.Program, err = agents.Find(name); err != nil {
				t.Fatal(err)
			}
		}
		p, err := adapter.Launch(l)
		if err != nil {
			t.Fatal(err)
		}
		return p, adapter.About()
	}
	p, about := start("mine", true)
	if !slices.Equal(p.Args[:3], []string{program, "--careful", "-p"}) || !slices.Equal(p.Mounts, []string{program}) {
		t.Errorf("plan %q, mounts %q", p.Args, p.Mounts)
	}
	if !slices.Equal(p.Env[len(p.Env)-2:], []string{"A=1", "B=2"}) {
		t.Errorf("environment %q", p.Env)
	}
	if about.Name != "mine" || about.API != "anthropic" || !about.Resume || about.Install != "" {
		t.Errorf("about %+v", about)
	}
	if p, _ := start("mine", false); !slices.Equal(p.Args[:3], []string{"fork", "--careful", "-p"}) {
		t.Errorf("in an image: %q", p.Args)
	}
	p, about = start("tool", true)
	if !slices.Equal(p.Args, []string{program, "-x"}) || about.API != "openai" || !slices.Contains(p.Env, "OPENAI_BASE_URL=http://127.0.0.1:3128/v1") {
		t.Errorf("plan %q %q", p.Args, p.Env)
	}
	if _, err := agents.Find("other"); err == nil {
		t.Error("a program was found that is not there")
	}
	if err := agents.Able(jobs.Job{Agent: jobs.Agent{Name: "other", MaxTurns: 3}}); err == nil {
		t.Error("an agent of protocol codex counts its turns")
	}
}

// An agent of protocol acp finds the job's skills where its settings say that it reads its user's.
func TestCustomSkills(t *testing.T) {
	agents := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{
		"reads": {Protocol: "acp", Command: []string{"x", "--acp"}, Skills: ".x/skills"}, "other": {Protocol: "acp", Command: []string{"x"}},
	}})
	for name, able := range map[string]bool{"reads": true, "other": false} {
		adapter, err := agents.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		l := adaptertest.Launch(name)
		if p, err := adapter.Launch(l); err != nil || p.Args[0] != "x" {
			t.Errorf("%s, without skills: %v, %q", name, err, p.Args)
		}
		l.Job.Agent.Skills = map[string]jobs.Skill{"tide": {Files: map[string]string{jobs.SkillFile: "x"}}}
		if err := agents.Able(l.Job); (err == nil) != able {
			t.Errorf("%s, with skills: %v", name, err)
		}
		if p, err := adapter.Launch(l); able && (err != nil || !slices.Equal(p.Args[3:], []string{"in-home", ".x/skills", l.SkillsDir(), "x", "--acp"})) {
			t.Errorf("%s, with skills: %v, %q", name, err, p.Args)
		}
	}
}

// An agent of protocol acp whose settings name a file of MCP servers reads those of the job there, and
// hears of none by the protocol.
func TestCustomServers(t *testing.T) {
	agents := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{
		"reads": {Protocol: "acp", Command: []string{"x", "--acp"}, MCPConfig: ".x/mcp.json", Skills: ".x/skills"}, "hears": {Protocol: "acp", Command: []string{"x", "--acp"}},
	}})
	l := adaptertest.Launch("reads")
	l.Variable, l.Job.Env = "INSIDE", map[string]string{"OF_THE_JOB": "x"}
	l.Job.Agent.MCPServers = map[string]jobs.MCPServer{"tiny": {Command: "server", Env: map[string]string{"OWN": "y"}}}
	l.Job.Agent.Terminals, l.Job.Agent.Skills = true, map[string]jobs.Skill{"tide": {Files: map[string]string{jobs.SkillFile: "x"}}}
	hears := func(name string) bool {
		t.Helper()
		adapter, err := agents.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		read := adapter.Decoder(l).Line(agent.Line{Stream: agent.Stdout, Bytes: []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{}}}`)})
		session := string(bytes.Join(read.Reply, nil))
		if !strings.Contains(session, "session/new") {
			t.Fatalf("%s is sent %s", name, session)
		}
		return strings.Contains(session, "tiny") || strings.Contains(session, "terminals")
	}
	plan := func(name string) (agent.Plan, map[string]any) {
		t.Helper()
		adapter, err := agents.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := adapter.Launch(l)
		if err != nil {
			t.Fatal(err)
		}
		var config struct {
			Servers map[string]any `json:"mcpServers"`
		}
		for _, f := range p.Files {
			if f.Path == "mcp.json" {
				if err := json.Unmarshal(f.Content, &config); err != nil {
					t.Fatal(err)
				}
			}
		}
		return p, config.Servers
	}
	p, servers := plan("reads")
	variables := map[string]any{"OF_THE_JOB": "${OF_THE_JOB}", "INSIDE": "${INSIDE}"}
	name, args := l.TerminalServer()
	want := map[string]any{
		"tiny": map[string]any{"type": "local", "command": "/bin/sh", "args": []any{l.Files + "/mcp/tiny"}, "env": variables, "tools": []any{"*"}},
		name:   map[string]any{"type": "local", "command": "penstock", "args": []any{args[0]}, "env": variables, "tools": []any{"*"}},
	}
	if !reflect.DeepEqual(servers, want) {
		t.Errorf("servers %v, want %v", servers, want)
	}
	if !slices.Equal(p.Args[3:6], []string{"in-home", ".x/mcp.json", l.Files + "/mcp.json"}) || !slices.Equal(p.Args[len(p.Args)-2:], []string{"x", "--acp"}) || !slices.Contains(p.Args, ".x/skills") {
		t.Errorf("arguments %q", p.Args)
	}
	if hears("reads") || !hears("hears") {
		t.Errorf("by the protocol one hears of servers: %v, the other: %v", hears("reads"), hears("hears"))
	}
	if p, servers := plan("hears"); servers != nil || p.Args[0] != "x" {
		t.Errorf("an agent without such a file: %v, %q", servers, p.Args)
	}
	l.Job.Agent.MCPServers, l.Job.Agent.Terminals, l.Job.Agent.Skills = nil, false, nil
	if p, servers := plan("reads"); servers != nil || p.Args[0] != "x" {
		t.Errorf("a job without servers: %v, %q", servers, p.Args)
	}
}

// What only the start of an agent knows is put into its variables; one that needs what there is not
// is left out.
func TestVariablesOfAStart(t *testing.T) {
	env := map[string]string{
		"URL": "{base_url}/x", "AUTH": "Bearer {api_key}", "MODEL": "{model}", "DEFAULT": "{model:our/small-1.5}", "TWO": "{model:m} at {base_url}",
		"PLAIN": `{"model":"{name}","n":{}}`, "EMPTY": "",
	}
	for _, tt := range []struct {
		custom      agent.Custom
		gate, model string
		want        []string
	}{
		{agent.Custom{Protocol: "acp", Command: []string{"x"}, API: "openai"}, "http://gate", "big",
			[]string{"AUTH=Bearer token", "DEFAULT=big", "EMPTY=", `PLAIN={"model":"{name}","n":{}}`, "MODEL=big", "TWO=big at http://gate/v1", "URL=http://gate/v1/x"}},
		{agent.Custom{Protocol: "command", Command: []string{"x"}, API: "anthropic"}, "http://gate", "",
			[]string{"AUTH=Bearer token", "DEFAULT=our/small-1.5", "EMPTY=", `PLAIN={"model":"{name}","n":{}}`, "TWO=m at http://gate", "URL=http://gate/x"}},
		{agent.Custom{Protocol: "codex"}, "http://gate", "", // whose API is its protocol's
			[]string{"AUTH=Bearer token", "DEFAULT=our/small-1.5", "EMPTY=", `PLAIN={"model":"{name}","n":{}}`, "TWO=m at http://gate/v1", "URL=http://gate/v1/x"}},
		{agent.Custom{Protocol: "acp", Command: []string{"x"}, API: "openai"}, "", "",
			[]string{"DEFAULT=our/small-1.5", "EMPTY=", `PLAIN={"model":"{name}","n":{}}`}},
	} {
		tt.custom.Env = env
		adapter, err := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"mine": tt.custom}}).Get("mine")
		if err != nil {
			t.Fatal(err)
		}
		l := adaptertest.Launch("mine")
		l.Gate, l.Key, l.Job.Agent.Model = tt.gate, "token", tt.model
		p, err := adapter.Launch(l)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(p.Env, func(v string) bool {
			name, _, _ := strings.Cut(v, "=")
			_, ours := env[name]
			return !ours
		})
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s for %q, model %q: %q, want %q", tt.custom.Protocol, tt.gate, tt.model, got, tt.want)
		}
	}
}

// An agent whose variables have the job's model is not asked to use it once more: it may have another
// name for it.
func TestAModelIsNamedOnce(t *testing.T) {
	for value, want := range map[string]string{"{model}": "", "x/{model:small}": "", "{base_url}": "big", "model": "big"} {
		custom := agent.Custom{Protocol: "acp", Command: []string{"x"}, API: "openai", Env: map[string]string{"OURS": value}}
		adapter, err := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"mine": custom}}).Get("mine")
		if err != nil {
			t.Fatal(err)
		}
		l := adaptertest.Launch("mine")
		l.Job.Agent.Model = "big"
		if got := adapter.Decoder(l).Total().Model; got != want {
			t.Errorf("with the variable %q it is asked for %q, want %q", value, got, want)
		}
	}
}
