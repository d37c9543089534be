// Package gemini runs Gemini CLI, one prompt in each process. The prompt goes in on stdin,
// events come out as JSON lines.
//
// The gate must lead to Google's Gemini API.
//
// Settings, hooks and servers of the repository are not read, because they would run
// without being asked for. The program reads them if it trusts the directory when it
// starts, and uses tools, git included, if it trusts the directory later. A variable
// denies the first, and an argument, which the program reads after the variable, grants
// the second.
package gemini

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
)

// tries is how often Gemini CLI makes a model call before its turn fails.
const tries = 4

// An Adapter starts and decodes Gemini CLI.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{
		Name: "gemini", Protocol: "gemini", Install: "npm install -g @google/gemini-cli",
		Abilities: agent.Abilities{Resume: true, Model: true, MaxTurns: true, Tokens: true, Instructions: true, MCPServers: true, API: "google"},
	}
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if l.Session == "" || l.ID == "" {
		return agent.Plan{}, fmt.Errorf("agent gemini: a launch needs a job and a session")
	}
	l.API = "google"
	args := []string{"--output-format", "stream-json", "--skip-trust"}
	if !l.HasFlag("--approval-mode") {
		// The jail decides what the agent may do. A question would never be answered.
		args = append(args, "--approval-mode", "yolo")
	}
	if l.Resume != "" {
		args = append(args, "--resume", l.Resume)
	} else {
		args = append(args, "--session-id", l.NewSession())
	}
	if model := l.Job.Agent.Model; model != "" {
		args = append(args, "--model", model)
	}
	return agent.Plan{
		Args:  slices.Concat([]string{"/bin/sh", "-c", startScript, "gemini"}, l.Program.Command("gemini"), args, l.Job.Agent.Args),
		Env:   slices.Concat(l.Env(), l.GateEnv(), environment, []string{settingsVariable + "=" + settings(l)}),
		Stdin: [][]byte{[]byte(promptText(l.FirstPrompt()))},
		Files: l.PlanFiles(), Mounts: l.Program.Mounts,
	}, nil
}

// startScript writes the settings and the job's instructions to the only places where the
// program reads them, files in its home, and starts the program.
const startScript = `mkdir -p "$HOME/.gemini" && printf %s "$` + settingsVariable + `" >"$HOME/.gemini/settings.json" &&
if [ -n "$PENSTOCK_INSTRUCTIONS_FILE" ]; then cat "$PENSTOCK_INSTRUCTIONS_FILE" >"$HOME/.gemini/GEMINI.md"; fi && exec "$@"`

const settingsVariable = "PENSTOCK_GEMINI_SETTINGS"

var environment = []string{
	"GEMINI_CLI_TRUST_WORKSPACE=false",
	// Otherwise the program would start itself again to set its memory limit.
	"GEMINI_CLI_NO_RELAUNCH=1",
}

func settings(l agent.Launch) string {
	type object = map[string]any
	settings := object{
		"security": object{"auth": object{"selectedType": "gemini-api-key"}},
		// No contact with anything but the model.
		"privacy": object{"usageStatisticsEnabled": false}, "telemetry": object{"enabled": false},
		"general": object{
			"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": tries,
			"plan": object{"enabled": false}, // which a person would have to accept
		},
	}
	tools := object{"shell": object{"enableInteractiveShell": false}}
	if l.Gate != "" {
		// These tools run at the provider: a way out of the jail, which the gate
		// refuses.
		tools["exclude"] = []string{"google_web_search", "web_fetch"}
	}
	settings["tools"] = tools
	servers, variables := object{}, object{}
	for _, name := range l.MCPVariables() {
		variables[name] = "$" + name // otherwise the program keeps some from its servers
	}
	for _, s := range l.MCPServers() {
		servers[s.Name] = object{"command": s.Command, "args": s.Args, "env": variables, "trust": true}
	}
	settings["mcpServers"] = servers
	if n := l.Job.Agent.MaxTurns; n > 0 {
		settings["model"] = object{"maxSessionTurns": n}
	}
	return string(decode.JSON(settings))
}

// promptText keeps the program from taking a prompt for one of its own
// commands.
func promptText(text string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "/") {
		return "The request is:\n\n" + text
	}
	return text
}
