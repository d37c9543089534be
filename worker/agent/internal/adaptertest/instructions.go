package adaptertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/gate"
)

// instructions have in them what shells, JSON, TOML and templates of agents act on.
const instructions = "# Rules\n\n\tSay \"ahoy\" & don't expand $HOME, ${HOME}, {env:HOME} or `id`; C:\\new \\u0041 <b>\u00a0日本</b>.\nLast line."

// Instructed runs a real agent in a jail, whose job has instructions and whose repository
// has instruction files of its own: the model is told the job's as they are, the files
// stay as they are, and nothing else is in the workspace.
func Instructed(t *testing.T, agents *agent.Agents, l agent.Launch, api string) {
	t.Helper()
	RequireJail(t)
	model := agenttest.New()
	l.Job.Agent.Instructions = instructions
	own := []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md"}
	for _, name := range own {
		if err := os.WriteFile(filepath.Join(l.Cwd, name), []byte("the repository's\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	session := gate.NewSession("s", JailKey, gate.Limits{})
	r := Jailed(t, agents, l, Gated{Gate: NewGate(t, api, model), Session: session})
	told := 0
	for _, req := range model.Requests() {
		if strings.Contains(req.System, instructions) {
			told++
		}
	}
	if r.End.Outcome != jobs.Success || told == 0 {
		t.Errorf("ended %+v; %d of %d requests have the instructions", r.End, told, len(model.Requests()))
		Log(t, r)
	}
	for _, name := range own {
		if got, err := os.ReadFile(filepath.Join(l.Cwd, name)); err != nil || string(got) != "the repository's\n" {
			t.Errorf("%s is %q, err %v", name, got, err)
		}
	}
	if all, err := os.ReadDir(l.Cwd); err != nil || len(all) != len(own) {
		t.Errorf("the workspace has %v, err %v", all, err)
	}
}
