package agent

import (
	"fmt"
	"slices"
	"strings"
)

// geminiTries is how often Gemini CLI makes a model call before its turn fails.
const geminiTries = 4

// gemini runs Gemini CLI: one prompt in each process. The prompt goes in on stdin,
// events come out as JSON lines.
//
// The gate must lead to Google's Gemini API.
//
// Settings, hooks and servers of the repository are not read, because they would run
// without being asked for. The program reads them if it trusts the directory when it
// starts, and uses tools, git included, if it trusts the directory later. A variable
// denies the first, and an argument, which the program reads after the variable, grants
// the second.
type gemini struct{}

func (gemini) About() About {
	return About{
		Name: "gemini", Protocol: "gemini", Install: "npm install -g @google/gemini-cli",
		Abilities: Abilities{Resume: true, Model: true, MaxTurns: true, Tokens: true, API: "google"},
	}
}

func (gemini) Launch(l Launch) (Plan, error) {
	if l.Session == "" || l.ID == "" {
		return Plan{}, fmt.Errorf("agent gemini: a launch needs a job and a session")
	}
	l.api = "google"
	args := []string{"--output-format", "stream-json", "--skip-trust"}
	if !hasFlag(l.Job.Agent.Args, "--approval-mode") {
		// The jail decides what the agent may do. A question would never be answered.
		args = append(args, "--approval-mode", "yolo")
	}
	if l.Resume != "" {
		args = append(args, "--resume", l.Resume)
	} else {
		args = append(args, "--session-id", l.claudeSession())
	}
	if model := l.Job.Agent.Model; model != "" {
		args = append(args, "--model", model)
	}
	return Plan{
		Args:  slices.Concat([]string{"/bin/sh", "-c", geminiStart, "gemini"}, l.Program.command("gemini"), args, l.Job.Agent.Args),
		Env:   slices.Concat(l.env(), l.gateEnv(), geminiEnv, []string{geminiSettingsIn + "=" + geminiSettings(l)}),
		Stdin: [][]byte{[]byte(geminiPrompt(l.prompt()))},
		Files: l.files(), Mounts: l.Program.Mounts,
	}, nil
}

// geminiStart writes the settings to the only place where the program reads them, a
// file in its home, and starts the program.
const geminiStart = `mkdir -p "$HOME/.gemini" && printf %s "$` + geminiSettingsIn + `" >"$HOME/.gemini/settings.json" && exec "$@"`

const geminiSettingsIn = "PENSTOCK_GEMINI_SETTINGS"

var geminiEnv = []string{
	"GEMINI_CLI_TRUST_WORKSPACE=false",
	// Otherwise the program would start itself again to set its memory limit.
	"GEMINI_CLI_NO_RELAUNCH=1",
}

func geminiSettings(l Launch) string {
	type object = map[string]any
	settings := object{
		"security": object{"auth": object{"selectedType": "gemini-api-key"}},
		// No contact with anything but the model.
		"privacy": object{"usageStatisticsEnabled": false}, "telemetry": object{"enabled": false},
		"general": object{
			"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": geminiTries,
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
	if n := l.Job.Agent.MaxTurns; n > 0 {
		settings["model"] = object{"maxSessionTurns": n}
	}
	return string(jsonLine(settings))
}

// geminiPrompt keeps the program from taking a prompt for one of its own
// commands.
func geminiPrompt(text string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "/") {
		return "The request is:\n\n" + text
	}
	return text
}
