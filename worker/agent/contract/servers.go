package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// servers are the checks of the tools that a job brings.
var servers = []check{
	{"", "terminals", "it can be given terminals that people look at, too: `agent.terminals`", func(a agent.About) bool { return a.Terminals }, needsWorker},
	{"", "mcp_servers", "it uses MCP servers that the job names: `agent.mcp_servers`", func(a agent.About) bool { return a.MCPServers }, usesServer},
}

func needsWorker(context.Context, *trial) error { return untried("the servers of it need a worker") }

// tinyServer is an MCP server with one tool, whose answer has its argument and its variable.
const tinyServer = `while IFS= read -r line; do
	id=$(printf %s "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
	version=$(printf %s "$line" | sed -n 's/.*"protocolVersion":"\([^"]*\)".*/\1/p')
	answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
	case $line in
	*'"method":"initialize"'*) answer '{"protocolVersion":"'"$version"'","capabilities":{"tools":{}},"serverInfo":{"name":"tiny","version":"1"}}' ;;
	*'"method":"tools/list"'*) answer '{"tools":[{"name":"look","description":"Look.","inputSchema":{"type":"object","properties":{}}}]}' ;;
	*'"method":"tools/call"'*) answer '{"content":[{"type":"text","text":"TOOL SAYS '"$1 $OWN"'"}]}' ;;
	*'"method":"ping"'*) answer '{}' ;;
	esac
done
`

// searched are the names of the server's tool, by the protocols of agents that offer tools to the
// model only when it searches for them.
var searched = map[string]string{"codex": "mcp__tiny/look"}

// toolOf is the name by which the model calls the server's tool, as agents make it; empty: it was
// not offered.
func (t *trial) toolOf(r agenttest.Request) string {
	for _, name := range r.Tools {
		if strings.Contains(name, "tiny") && strings.Contains(name, "look") {
			return name
		}
	}
	return searched[t.about.Protocol]
}

func usesServer(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	var broken error
	s, err := t.run(ctx, task{launch: func(l *agent.Launch) {
		broken = os.WriteFile(filepath.Join(l.Cwd, "server"), []byte(tinyServer), 0o600)
		l.Job.Agent.MCPServers = map[string]jobs.MCPServer{"tiny": {Command: "sh", Args: []string{"server", "contract-argument"}, Env: map[string]string{"OWN": "contract-own"}}}
	}, model: func(r agenttest.Request) agenttest.Reply {
		if name := t.toolOf(r); name != "" && r.Turn == 0 {
			return agenttest.Reply{Calls: []agenttest.Call{{Name: name, Input: map[string]any{}}}}
		}
		return answer(r)
	}})
	if err == nil {
		err = broken
	}
	switch {
	case err != nil:
		return err
	case !slices.ContainsFunc(s.requests, func(r agenttest.Request) bool { return t.toolOf(r) != "" }):
		return fmt.Errorf("the server's tool was not offered to the model")
	case s.asked("TOOL SAYS contract-argument contract-own") == nil:
		return fmt.Errorf("the model did not get what the server's tool says, with its argument and variable")
	}
	return s.ended()
}
