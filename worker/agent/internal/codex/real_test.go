package codex_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/codex"
	"github.com/penstock-run/penstock/worker/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(command string) agenttest.Step {
	return agenttest.Use("exec_command", map[string]any{"cmd": command})
}

func TestRealCodex(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	model := agenttest.New(
		agenttest.Script{On: "EDIT", Steps: []agenttest.Step{run("printf 'hello\\n' > hello.txt; echo made"), agenttest.Say("done")}},
		agenttest.Script{On: "DENIED", Steps: []agenttest.Step{agenttest.Fail(401, "invalid_api_key")}},
	)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close) // as above
	tests := []struct {
		prompt string
		reason jobs.Reason
		check  func(t *testing.T, l agent.Launch, r adaptertest.Run)
	}{
		{prompt: "please\nEDIT", check: func(t *testing.T, l agent.Launch, r adaptertest.Run) {
			if got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt")); err != nil || string(got) != "hello\n" {
				t.Errorf("file %q, err %v", got, err)
			}
			if r.Count(jobs.ToolEnded) != 1 || r.Total.Usage.Input < 2000 || r.Total.Usage.Output != 100 || r.Total.Session == "" {
				t.Errorf("%d tools, total %+v", r.Count(jobs.ToolEnded), r.Total)
			}
		}},
		{prompt: "DENIED", reason: jobs.Unauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.prompt, func(t *testing.T) {
			t.Parallel()
			l := adaptertest.Prompted(t, "codex", tt.prompt, program)
			l.Gate = srv.URL
			l.Job.Agent.Model = "gpt-5.5"
			r := adaptertest.Unjailed(t, agents, l, t.TempDir())
			if r.End.Reason != tt.reason {
				t.Errorf("ended %+v, want reason %q", r.End, tt.reason)
			}
			if tt.check != nil {
				tt.check(t, l, r)
			}
			if t.Failed() {
				adaptertest.Log(t, r)
				t.Logf("%+v", model.Requests())
			}
		})
	}
}

func TestRealCodexResumes(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	srv := httptest.NewServer(agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		agenttest.Say("one"),
		func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "two, after " + r.Last} },
	}}))
	defer srv.Close()
	home := t.TempDir()
	l := adaptertest.Prompted(t, "codex", "FIRST", program)
	l.Gate = srv.URL
	l.Job.Agent.Model = "gpt-5.5"
	first := adaptertest.Unjailed(t, agents, l, home)
	l.Attempt, l.Resume, l.Prompt = 2, first.Total.Session, "the check failed"
	r := adaptertest.Unjailed(t, agents, l, home)
	if r.End.Outcome != jobs.Success || r.Total.Session != first.Total.Session || !strings.Contains(r.Data(jobs.TurnEnded), "two, after the check failed") {
		t.Errorf("resumed: %+v, %+v, %s", r.End, r.Total, r.Data(jobs.TurnEnded))
		adaptertest.Log(t, r)
	}
}

func TestRealCodexSeesImages(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	l, model := talkCodex(t, program)
	l.Images = []control.Image{adaptertest.Picture(t, 10)}
	adaptertest.SeesImages(t, agents, l, model)
}

// One turn, or an interactive job.
func TestJailedCodex(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	adaptertest.RequireJail(t)
	for _, interactive := range []bool{false, true} {
		t.Run(fmt.Sprintf("interactive=%v", interactive), func(t *testing.T) { jailedCodex(t, agents, program, interactive) })
	}
}

func jailedCodex(t *testing.T, agents *agent.Agents, program agent.Program, interactive bool) {
	model := agenttest.New(agenttest.Script{On: "EDIT", Steps: []agenttest.Step{
		run("printf 'hello\\n' > hello.txt; env"), agenttest.Say("done"),
	}})
	session := gate.NewSession("s", adaptertest.JailKey, gate.Limits{})
	l := adaptertest.Prompted(t, "codex", "EDIT", program)
	l.Job.Agent.Model, l.Job.Agent.Interactive = "gpt-5.5", interactive
	r := adaptertest.Jailed(t, agents, l, adaptertest.Gated{Gate: adaptertest.NewGate(t, "openai", model), Session: session})
	if r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v", r.End)
	}
	if got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt")); err != nil || string(got) != "hello\n" {
		t.Errorf("file %q, err %v", got, err)
	}
	if out := r.Data(jobs.ToolEnded); !strings.Contains(out, "PENSTOCK_JOB="+l.ID) || strings.Contains(out, adaptertest.RealKey) {
		t.Errorf("environment %s", out)
	}
	if m := session.Meter(); m.Usage.Input < 2000 || m.Usage.Output != 100 || m.Violations+m.Strangers != 0 || r.Total.Usage != m.Usage {
		t.Errorf("meter %+v, the agent counts %+v", m, r.Total)
	}
	for _, req := range model.Requests() {
		if req.Header.Get("Authorization") != "Bearer "+adaptertest.RealKey {
			t.Errorf("the provider got %q", req.Header.Get("Authorization"))
		}
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

func TestJailedCodexIsInstructed(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "codex", "hello", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "gpt-5.5", interactive
		adaptertest.Instructed(t, agents, l, "openai")
	}
}

func TestJailedCodexUsesServers(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "codex", "", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "gpt-5.5", interactive
		adaptertest.UsesServer(t, agents, l, "mcp__tiny/look")
	}
}

func TestJailedCodexHasSkills(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	c := adaptertest.SkillCase{API: "openai", Dir: ".agents/skills", Shell: func(command string) agenttest.Step {
		return agenttest.Use("exec_command", map[string]any{"cmd": command})
	}}
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "codex", "LOOK", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "gpt-5.5", interactive
		c.Skilled(t, agents, l)
	}
}
