// Package acp runs any agent that speaks the Agent Client Protocol, version 1, over
// its pipes. It has no program of its own: a settings file names one.
//
// The agent works on the files of its jail itself, so it is offered neither
// files nor terminals of this side.
package acp

import (
	"fmt"
	"maps"
	"slices"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
)

// An Adapter starts and decodes an agent of the protocol.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{Name: "acp", Protocol: "acp", Brought: true, Abilities: abilities}
}

var abilities = agent.Abilities{
	Interactive: true, Questions: true, Interrupt: true, Resume: true, Model: true, Effort: true, Tokens: true, Cost: true, Terminals: true,
	Images: true, MCPServers: true,
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if len(l.Job.Agent.Command) == 0 {
		return agent.Plan{}, fmt.Errorf("agent acp: it has no program; name one under agents: in the settings, with protocol: acp")
	}
	return agent.Plan{
		Args:  slices.Concat(l.Job.Agent.Command, l.Job.Agent.Args),
		Env:   slices.Concat(l.Env(), l.GateEnv()),
		Stdin: [][]byte{Hello()}, KeepStdin: true,
		Files: l.PlanFiles(), Mounts: l.Program.Mounts,
	}, nil
}

// Decoder implements [agent.Adapter].
func (Adapter) Decoder(l agent.Launch) agent.Decoder {
	return NewDecoder(l, Options{Name: "acp", Model: l.Job.Agent.Model, SetModel: true})
}

// version is the version of JSON-RPC, which every message names.
const version = "2.0"

// Hello is the first line sent to an agent of the protocol.
func Hello() []byte { return hello(jsonrpc.NewClient(version)) }

func hello(c *jsonrpc.Client) []byte {
	title := "Penstock"
	return c.Request(sdk.AgentMethodInitialize, sdk.InitializeRequest{
		ProtocolVersion: sdk.ProtocolVersionNumber,
		ClientInfo:      &sdk.Implementation{Name: "penstock", Title: &title, Version: "1"},
	}, "")
}

// beginSession is the request that begins the session, or continues an earlier one as far as
// the agent can.
func (d *decoder) beginSession() []byte {
	servers := []sdk.McpServer{}
	if d.launch.Job.Agent.Terminals {
		name, args := d.launch.TerminalServer()
		servers = append(servers, sdk.McpServer{Stdio: &sdk.McpServerStdio{
			Name: name, Command: d.launch.Penstock, Args: args,
			Env: []sdk.EnvVariable{{Name: d.launch.Variable, Value: d.launch.Inside}},
		}})
	}
	variables := []sdk.EnvVariable{}
	for _, name := range slices.Sorted(maps.Keys(d.with.Variables)) {
		variables = append(variables, sdk.EnvVariable{Name: name, Value: d.with.Variables[name]})
	}
	if _, given := d.with.Variables[d.launch.Variable]; d.launch.HasRemoteServers() && !given {
		variables = append(variables, sdk.EnvVariable{Name: d.launch.Variable, Value: d.launch.Inside})
	}
	for _, s := range d.launch.MCPServers() {
		servers = append(servers, sdk.McpServer{Stdio: &sdk.McpServerStdio{Name: s.Name, Command: s.Command, Args: s.Args, Env: variables}})
	}
	id := sdk.SessionId(d.launch.Resume)
	switch {
	case id == "":
		return d.rpc.Request(sdk.AgentMethodSessionNew, sdk.NewSessionRequest{Cwd: d.launch.Cwd, McpServers: servers}, "")
	case d.can.Session.Resume != nil:
		return d.rpc.Request(sdk.AgentMethodSessionResume, sdk.ResumeSessionRequest{SessionId: id, Cwd: d.launch.Cwd, McpServers: servers}, "")
	}
	d.replay.on = true
	return d.rpc.Request(sdk.AgentMethodSessionLoad, sdk.LoadSessionRequest{SessionId: id, Cwd: d.launch.Cwd, McpServers: servers}, "")
}
