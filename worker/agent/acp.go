package agent

import (
	"fmt"
	"slices"

	sdk "github.com/coder/acp-go-sdk"
)

// acp runs any agent that speaks the Agent Client Protocol, version 1, over
// its pipes. It has no program of its own: a settings file names one.
//
// The agent works on the files of its jail itself, so it is offered neither
// files nor terminals of this side.
type acp struct{}

func (acp) About() About {
	return About{Name: "acp", Protocol: "acp", Brought: true, Abilities: acpAbilities}
}

var acpAbilities = Abilities{
	Interactive: true, Questions: true, Interrupt: true, Resume: true, Model: true, Tokens: true, Cost: true, Terminals: true,
	Images: true,
}

func (acp) Launch(l Launch) (Plan, error) {
	if len(l.Job.Agent.Command) == 0 {
		return Plan{}, fmt.Errorf("agent acp: it has no program; name one under agents: in the settings, with protocol: acp")
	}
	return Plan{
		Args:  slices.Concat(l.Job.Agent.Command, l.Job.Agent.Args),
		Env:   slices.Concat(l.env(), l.gateEnv()),
		Stdin: [][]byte{newACPTalk(l, "acp").hello()}, KeepStdin: true,
		Files: l.files(), Mounts: l.Program.Mounts,
	}, nil
}

func (acp) Decoder(l Launch) Decoder {
	d := newACPTalk(l, "acp")
	d.model = l.Job.Agent.Model
	d.hello() // the plan sends the request, and this decoder reads its answer
	return d
}

// hello is the first line sent to the agent.
func (d *acpTalk) hello() []byte {
	title := "Penstock"
	return d.request(sdk.AgentMethodInitialize, sdk.InitializeRequest{
		ProtocolVersion: sdk.ProtocolVersionNumber,
		ClientInfo:      &sdk.Implementation{Name: "penstock", Title: &title, Version: "1"},
	}, "")
}

// begins is the request that begins the session, or continues an earlier one as far as
// the agent can.
func (d *acpTalk) begins() []byte {
	servers := []sdk.McpServer{}
	if d.launch.Job.Agent.Terminals {
		servers = append(servers, sdk.McpServer{Stdio: &sdk.McpServerStdio{
			Name: serverName, Command: d.launch.Penstock, Args: terminalServer,
			Env: []sdk.EnvVariable{{Name: d.launch.Variable, Value: d.launch.Inside}},
		}})
	}
	id := sdk.SessionId(d.launch.Resume)
	switch {
	case id == "":
		return d.request(sdk.AgentMethodSessionNew, sdk.NewSessionRequest{Cwd: d.launch.Cwd, McpServers: servers}, "")
	case d.can.Session.Resume != nil:
		return d.request(sdk.AgentMethodSessionResume, sdk.ResumeSessionRequest{SessionId: id, Cwd: d.launch.Cwd, McpServers: servers}, "")
	}
	d.replays = true
	return d.request(sdk.AgentMethodSessionLoad, sdk.LoadSessionRequest{SessionId: id, Cwd: d.launch.Cwd, McpServers: servers}, "")
}
