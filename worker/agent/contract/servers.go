package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

// servers are the checks of the tools that a job brings.
var servers = []check{
	{"", "terminals", "it can be given terminals that people look at, too: `agent.terminals`", func(a agent.About) bool { return a.Terminals }, usesTerminals},
	{"", "mcp_servers", "it uses MCP servers that the job names: `agent.mcp_servers`", func(a agent.About) bool { return a.MCPServers }, usesServer},
}

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

// penstockPath is where jails have the program that is the server of their terminals, as a worker
// shows it.
const penstockPath = "/penstock/bin/penstock"

// searched are the names of a server's tool, by the protocols of agents that offer tools to the
// model only when it searches for them.
var searched = map[string]string{"codex": "mcp__%s/look"}

// searchTool is the tool of agents that offer a server's tool only after the model has searched for it.
const searchTool = "tool_search"

// toolOf is the name by which the model calls the tool of a server, as agents make it; empty: it was
// not offered.
func (t *trial) toolOf(r agenttest.Request, server string) string {
	for _, name := range r.Tools {
		if strings.Contains(name, server) && strings.Contains(name, "look") {
			return name
		}
	}
	if pattern := searched[t.about.Protocol]; pattern != "" {
		return fmt.Sprintf(pattern, server)
	}
	return ""
}

// calls is a model that calls the tool of a server once.
func (t *trial) calls(server string) agenttest.Step {
	return func(r agenttest.Request) agenttest.Reply {
		name, searches := t.toolOf(r, server), slices.Contains(r.Tools, searchTool)
		switch {
		case name != "" && (r.Turn == 0 || r.Turn == 1 && searches):
			return agenttest.Reply{Calls: []agenttest.Call{{Name: name, Input: map[string]any{}}}}
		case name == "" && r.Turn == 0 && searches:
			return agenttest.Reply{Calls: []agenttest.Call{{Name: searchTool, Input: map[string]any{"query": "select:mcp__" + server + "__look"}}}}
		}
		return answer(r)
	}
}

// called is an error unless the model got what the server's tool says.
func (s *seen) called(t *trial, server, says string) error {
	switch {
	case !slices.ContainsFunc(s.requests, func(r agenttest.Request) bool { return t.toolOf(r, server) != "" }):
		return fmt.Errorf("the server's tool was not offered to the model")
	case s.asked(says) == nil:
		return fmt.Errorf("the model did not get what the server's tool says, with its argument and variable")
	}
	return s.ended()
}

func usesServer(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	var broken error
	s, err := t.run(ctx, task{launch: func(l *agent.Launch) {
		broken = os.WriteFile(filepath.Join(l.Cwd, "server"), []byte(tinyServer), 0o600)
		l.Job.Agent.MCPServers = map[string]jobs.MCPServer{"tiny": {Command: "sh", Args: []string{"server", "contract-argument"}, Env: map[string]string{"OWN": "contract-own"}}}
	}, model: t.calls("tiny")})
	if err := errors.Join(err, broken); err != nil {
		return err
	}
	return s.called(t, "tiny", "TOOL SAYS contract-argument contract-own")
}

// usesTerminals has the agent use a server in the place of the one that has a jail's terminals.
func usesTerminals(ctx context.Context, t *trial) error {
	if err := needsModel(t); err != nil {
		return err
	}
	if t.about.Protocol == "command" {
		return untried("an agent of protocol command may do what it wants with the server of its terminals")
	}
	const variable, inside = "PENSTOCK_INSIDE", "contract-inside"
	var server string
	s, err := t.run(ctx, task{launch: func(l *agent.Launch) {
		l.Job.Agent.Terminals = true
		l.Penstock, l.Variable, l.Inside = penstockPath, variable, inside
		server, _ = l.TerminalServer()
	}, jail: func(j *harness.Jail) {
		j.Spec.Files = append(slices.Clone(j.Spec.Files), sandbox.File{Path: penstockPath, Data: []byte("#!/bin/sh\nOWN=$" + variable + "\n" + tinyServer), Mode: 0o755})
		j.Spec.Env = append(slices.Clone(j.Spec.Env), variable+"="+inside)
		for i, kv := range j.Spec.Env {
			if path, ok := strings.CutPrefix(kv, "PATH="); ok {
				j.Spec.Env[i] = "PATH=" + filepath.Dir(penstockPath) + ":" + path
			}
		}
	}, model: func(r agenttest.Request) agenttest.Reply { return t.calls(server)(r) }})
	if err != nil {
		return err
	}
	return s.called(t, server, "TOOL SAYS terminals "+inside)
}
