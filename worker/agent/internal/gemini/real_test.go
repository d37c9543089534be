package gemini_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/gemini"
	"github.com/penstock-run/penstock/worker/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(command string) agenttest.Step {
	return agenttest.Use("run_shell_command", map[string]any{"command": command, "description": "run it"})
}

// trap makes a repository whose settings start programs where they are read.
func trap(t *testing.T, repo string) {
	t.Helper()
	const hook = `[{"hooks":[{"type":"command","command":"touch trapped-by-a-hook"}]}]`
	const settings = `{"hooksConfig":{"enabled":true},"hooks":{"SessionStart":` + hook + `,"BeforeTool":` + hook + `},` +
		`"mcpServers":{"m":{"command":"touch","args":["trapped-by-a-server"]}}}`
	if err := os.MkdirAll(filepath.Join(repo, ".gemini"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, ".gemini/settings.json"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", repo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Gemini CLI in a jail edits and commits, and starts nothing that only the
// repository's settings name.
func TestJailedGemini(t *testing.T) {
	agents, program := adaptertest.Program(t, gemini.Adapter{})
	adaptertest.RequireJail(t)
	model := agenttest.New(agenttest.Script{On: "EDIT", Steps: []agenttest.Step{
		agenttest.Use("write_file", map[string]any{"file_path": "hello.txt", "content": "hello\n"}),
		run("git add hello.txt && git -c user.name=a -c user.email=a@b commit -qm made && git log --format=%s && env"),
		agenttest.Use("replace", map[string]any{"file_path": "hello.txt", "old_string": "hello", "new_string": "goodbye", "instruction": "change it"}),
		agenttest.Say("done"),
	}})
	session := gate.NewSession("s", adaptertest.JailKey, gate.Limits{})
	l := adaptertest.Prompted(t, "gemini", "please\nEDIT", program)
	l.Job.Agent.Model = "gemini-2.5-flash" // without one it asks another model first which to use
	trap(t, l.Cwd)
	r := adaptertest.Jailed(t, agents, l, adaptertest.Gated{Gate: adaptertest.NewGate(t, "google", model), Session: session})
	if r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v", r.End)
	}
	if got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt")); err != nil || string(got) != "goodbye\n" {
		t.Errorf("file %q, err %v", got, err)
	}
	if trapped, err := filepath.Glob(filepath.Join(l.Cwd, "trapped*")); err != nil || len(trapped) > 0 {
		t.Errorf("what the repository's settings name has run: %v, err %v", trapped, err)
	}
	if out := r.Data(jobs.ToolEnded); !strings.Contains(out, `"output":"made\n`) || !strings.Contains(out, "PENSTOCK_JOB="+l.ID) || strings.Contains(out, adaptertest.RealKey) {
		t.Errorf("it cannot commit, or has another environment: %s", out)
	}
	if r.Count(jobs.ToolStarted) != 3 || r.Count(jobs.FileChanged) != 2 || r.Total.Session != l.Session {
		t.Errorf("%d tools, %d files, total %+v", r.Count(jobs.ToolStarted), r.Count(jobs.FileChanged), r.Total)
	}
	if m := session.Meter(); m.Usage.Input < 4000 || m.Usage.Output != 200 || m.Violations+m.Strangers != 0 || r.Total.Usage != m.Usage {
		t.Errorf("meter %+v, the agent counts %+v", m, r.Total)
	}
	for _, req := range model.Requests() {
		if req.Header.Get("X-Goog-Api-Key") != adaptertest.RealKey {
			t.Errorf("the provider got %q", req.Header.Get("X-Goog-Api-Key"))
		}
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

func TestJailedGeminiIsInstructed(t *testing.T) {
	agents, program := adaptertest.Program(t, gemini.Adapter{})
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "gemini", "hello", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "gemini-2.5-flash", interactive
		adaptertest.Instructed(t, agents, l, "google")
	}
}

func TestJailedGeminiUsesServers(t *testing.T) {
	agents, program := adaptertest.Program(t, gemini.Adapter{})
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "gemini", "", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "gemini-2.5-flash", interactive
		adaptertest.UsesServer(t, agents, l, "mcp_tiny_look")
	}
}

func TestJailedGeminiHasSkills(t *testing.T) {
	agents, program := adaptertest.Program(t, gemini.Adapter{})
	c := adaptertest.SkillCase{API: "google", Dir: ".gemini/skills", Shell: run}
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "gemini", "LOOK", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "gemini-2.5-flash", interactive
		c.Skilled(t, agents, l)
	}
}
