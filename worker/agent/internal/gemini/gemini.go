// Package gemini runs Gemini CLI in one of two ways. In a job that is not interactive a process
// runs one prompt: the prompt goes in on stdin, events come out as JSON lines. An interactive job
// gets its server for the Agent Client Protocol; see package acp.
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
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/capsule"
)

// tries is how often Gemini CLI makes a model call before its turn fails.
const tries = 4

// An Adapter starts and decodes Gemini CLI.
type Adapter struct{}

// About implements [agent.Adapter].
func (Adapter) About() agent.About {
	return agent.About{
		Name: "gemini", Protocol: "gemini", Install: "npm install -g @google/gemini-cli",
		Package:      agentstore.Package{Name: "@google/gemini-cli", Program: "gemini"},
		Conversation: capsule.Files{Paths: []capsule.Pattern{".gemini/tmp/penstock/chats/session-*{id8}*.jsonl"}}, OneShot: true,
		Abilities: agent.Abilities{
			Interactive: true, Interrupt: true, Resume: true, Model: true, MaxTurns: true, Tokens: true, Images: true,
			Instructions: true, Skills: true, MCPServers: true, API: "google",
		},
	}
}

// Launch implements [agent.Adapter].
func (Adapter) Launch(l agent.Launch) (agent.Plan, error) {
	if l.Session == "" || l.ID == "" {
		return agent.Plan{}, fmt.Errorf("agent gemini: a launch needs a job and a session")
	}
	l.API = "google"
	p := onePrompt(l)
	if l.Job.Agent.Interactive {
		p = interactive(l)
	}
	p.Env = slices.Concat(l.Env(), l.GateEnv(), environment, p.Env, []string{settingsVariable + "=" + settings(l)})
	p.Files, p.Mounts = l.PlanFiles(), l.Program.Mounts
	return p, nil
}

func onePrompt(l agent.Launch) agent.Plan {
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
		Args:  l.WithSkills(skillsDir, slices.Concat([]string{"/bin/sh", "-c", startScript + start, "gemini"}, l.Program.Command("gemini"), args, l.Job.Agent.Args)),
		Stdin: [][]byte{[]byte(promptText(l.FirstPrompt()))},
	}
}

// startScript writes the settings and the job's instructions to the only places where the
// program reads them, files in its home. It also names the directory of the workspace's
// conversations, for which the program has a name of its own otherwise.
const startScript = `set -e
mkdir -p "$HOME/.gemini/tmp/penstock/chats"
printf %s "$PENSTOCK_WORKSPACE" >"$HOME/.gemini/tmp/penstock/.project_root"
printf %s "$` + settingsVariable + `" >"$HOME/.gemini/settings.json"
if [ -n "$PENSTOCK_INSTRUCTIONS_FILE" ]; then cat "$PENSTOCK_INSTRUCTIONS_FILE" >"$HOME/.gemini/GEMINI.md"; fi`

// skillsDir is where the program reads its user's skills.
const skillsDir = ".gemini/skills"

const start = "\nexec \"$@\""

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
			"plan": object{"enabled": l.Job.Agent.Interactive},
		},
	}
	exclude := []string{}
	if l.Job.Agent.Interactive {
		exclude = append(exclude, "enter_plan_mode") // its plan mode ends with a person's consent, so a person begins it
	}
	if l.Gate != "" {
		// These tools run at the provider: a way out of the jail, which the gate
		// refuses.
		exclude = append(exclude, "google_web_search", "web_fetch")
	}
	settings["tools"] = object{"shell": object{"enableInteractiveShell": false}, "exclude": exclude}
	if !l.Job.Agent.Interactive { // then they come with the session
		settings["mcpServers"] = servers(l)
	}
	if n := l.Job.Agent.MaxTurns; n > 0 {
		settings["model"] = object{"maxSessionTurns": n}
	}
	return string(decode.JSON(settings))
}

func servers(l agent.Launch) map[string]any {
	servers, variables := map[string]any{}, map[string]string{}
	for _, name := range l.MCPVariables() {
		variables[name] = "$" + name // otherwise the program keeps some from its servers
	}
	for _, s := range l.MCPServers() {
		servers[s.Name] = map[string]any{"command": s.Command, "args": s.Args, "env": variables, "trust": true}
	}
	return servers
}

// promptText keeps the program from taking a prompt for one of its own commands, and from
// leaving it out of the conversation when it goes on with it.
func promptText(text string) string {
	if begin := strings.TrimSpace(text); begin != "" && strings.ContainsRune("/?$", rune(begin[0])) {
		return "The request is:\n\n" + text
	}
	return text
}
