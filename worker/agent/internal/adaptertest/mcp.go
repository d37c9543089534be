package adaptertest

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/gate"
)

// tinyServer is an MCP server with one tool, whose answer is what the server was started with.
const tinyServer = `while IFS= read -r line; do
	id=$(printf %s "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
	version=$(printf %s "$line" | sed -n 's/.*"protocolVersion":"\([^"]*\)".*/\1/p')
	answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
	case $line in
	*'"method":"initialize"'*) answer '{"protocolVersion":"'"$version"'","capabilities":{"tools":{}},"serverInfo":{"name":"tiny","version":"1"}}' ;;
	*'"method":"tools/list"'*) answer '{"tools":[{"name":"look","description":"Look.","inputSchema":{"type":"object","properties":{}}}]}' ;;
	*'"method":"tools/call"'*) answer '{"content":[{"type":"text","text":"seen '"$(printf '%s,' "$@" "$TEAM" "$TEAM_TOKEN" "$OWN" | base64 -w0)"' seen"}]}' ;;
	*'"method":"ping"'*) answer '{}' ;;
	esac
done
`

// UsesServer runs a real agent in a jail, whose job has an MCP server of the repository: the
// model uses its tool, and is told that the server got its arguments and variables as they
// are. The name of the tool is what the agent makes of it. Nothing is added to the workspace.
func UsesServer(t *testing.T, agents *agent.Agents, l agent.Launch, tool string) {
	t.Helper()
	RequireJail(t)
	model := agenttest.New(agenttest.Script{On: "LOOK", Steps: []agenttest.Step{agenttest.Use(tool, map[string]any{}), Echo}})
	if err := os.WriteFile(filepath.Join(l.Cwd, "server"), []byte(tinyServer), 0o600); err != nil {
		t.Fatal(err)
	}
	hostile := `it's $HOME ${HOME} {env:HOME} "x" ` + "`id`\n\\"
	l.Job.Prompt = "LOOK"
	l.Job.Env = map[string]string{"TEAM": "web"}
	l.Job.Secrets = []string{"TEAM_TOKEN"}
	l.Job.Agent.MCPServers = map[string]jobs.MCPServer{
		"tiny": {Command: "sh", Args: []string{"server", hostile, "--flag"}, Env: map[string]string{"OWN": hostile}},
	}
	r := Jailed(t, agents, l, Gated{Gate: NewGate(t, agents.All()[0].API, model), Session: gate.NewSession("s", JailKey, gate.Limits{})})
	want := []string{hostile, "--flag", "web", "value of TEAM_TOKEN", hostile, ""}
	told := ""
	for _, req := range model.Requests() {
		if _, after, ok := strings.Cut(req.Last, "seen "); ok {
			told, _, _ = strings.Cut(after, " seen")
		}
	}
	if got := decoded(t, told); r.End.Outcome != jobs.Success || got != strings.Join(want, ",") {
		t.Errorf("ended %+v; the server has %q, want %q", r.End, got, want)
		Log(t, r)
		t.Logf("%.3000v", model.Requests())
	}
	if all, err := os.ReadDir(l.Cwd); err != nil || len(all) != 1 {
		t.Errorf("the workspace has %v, err %v", all, err)
	}
}

func decoded(t *testing.T, text string) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return string(b)
}
