package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// acpProgram is a real program of the Agent Client Protocol, which settings alone describe. It
// runs the Claude Code that is installed here.
const acpProgram = "claude-agent-acp"

// A describedReal is a real program that settings describe.
type describedReal struct {
	realAgent
	permits  string // the mode in which it asks for no permission; empty: it asks for none as it is
	skills   bool   // it tells its model of the skills of its user
	checks   string // of penstock agent test, beside what is tested here
	settings func(t *testing.T, program string) string
}

// describedReals are such programs. The tools that they offer the model are those of other agents.
var describedReals = []describedReal{
	{realAgent{acpProgram, "ANTHROPIC", "", realAgents[0].shell, nil}, "bypassPermissions", false, "", func(t *testing.T, program string) string {
		t.Helper()
		claude, err := exec.LookPath("claude")
		if err != nil {
			skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
		}
		if claude, err = filepath.EvalSymlinks(claude); err != nil {
			t.Fatal(err)
		}
		return `    command: [` + program + `]
    api: anthropic
    env:
      CLAUDE_CODE_EXECUTABLE: ` + claude + `
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1"
      CLAUDE_CODE_MAX_RETRIES: "2"
      IS_SANDBOX: "1"
    conversation: {files: [".claude/projects/*/{id}.jsonl"]}
worker:
  ro_paths: [` + filepath.Dir(claude) + `]
`
	}},
	{realAgent{"copilot", "OPENAI", "gpt-5.4", func(command string) agenttest.Step {
		return agenttest.Use("bash", map[string]any{"command": command, "description": "run"})
	}, nil}, "", true, "mcp_servers,terminals", func(t *testing.T, program string) string {
		t.Helper()
		unpacked := t.TempDir()
		unpack := exec.CommandContext(t.Context(), program, "--version")
		unpack.Env = append(os.Environ(), "COPILOT_SEA_EXTRACT_ONLY=1", "COPILOT_PKG_CACHE_HOME="+unpacked)
		if out, err := unpack.CombinedOutput(); err != nil {
			t.Fatalf("unpack %s: %v: %s", program, err, out)
		}
		return `    command: [` + program + `, --acp, --allow-all-tools]
    api: openai
    env:
      COPILOT_OFFLINE: "true"
      COPILOT_PROVIDER_BASE_URL: "{base_url}"
      COPILOT_PROVIDER_API_KEY: "{api_key}"
      COPILOT_MODEL: "{model:gpt-5.4}"
      COPILOT_PKG_CACHE_HOME: ` + unpacked + `
    conversation:
      files: [".copilot/session-state/{id}/**"]
      except: [".copilot/session-state/*/*.lock", ".copilot/session-state/*/*.hold"]
    skills: .copilot/skills
    mcp_config: .copilot/mcp-config.json
worker:
  ro_paths: [` + unpacked + `]
`
	}},
	{realAgent{"qwen", "OPENAI", "qwen3-coder-plus", realAgents[2].shell, nil}, "yolo", false, "tokens,mcp_servers", func(t *testing.T, program string) string {
		t.Helper()
		return `    command: [` + program + `, --acp]
    api: openai
    auth: openai
    env: {OPENAI_MODEL: "{model:qwen3-coder-plus}", QWEN_TELEMETRY_ENABLED: "false"}
    conversation: {files: [".qwen/projects/*/chats/{id}.jsonl"]}
`
	}},
}

// Servers of tools and of terminals reach a program by the file that its settings name, or by the protocol; what one
// tells of its tokens is what the gate counts.
func TestChecksOfRealDescribedAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, d := range describedReals {
		if d.checks == "" {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			said, code, told := f.try("agent", "test", d.name, "--config", d.config(t), "--only", d.checks)
			if code != 0 || strings.Count(said, " yes ") != len(strings.Split(d.checks, ",")) {
				t.Errorf("exit code %d\n%s\n%s", code, said, told)
			}
		})
	}
}

// config are settings that describe the program that is installed here.
func (d describedReal) config(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath(d.name)
	if err != nil {
		skip(t, d.name, "no %s in PATH: docs/how-to/agents.md says which package of npm has it", d.name)
	}
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(config, []byte("agents:\n  "+d.name+":\n    protocol: acp\n"+d.settings(t, program)), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// writtenSkill is the directory of a skill that has the word.
func writtenSkill(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tide-tables")
	text := []byte("---\nname: tide-tables\ndescription: Use this for " + skillWord + ".\n---\nLook.\n")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, jobs.SkillFile), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A real program that settings describe has two turns behind it when its worker is killed with -9,
// between its turns and within one. Another worker with another directory goes on with the
// conversation, and does nothing twice. Where it can be, its model is told of the job's skill.
func TestARealDescribedAgentGoesOn(t *testing.T) {
	t.Parallel()
	for i := range 2 * len(describedReals) {
		agent, within := describedReals[i/2], i%2 == 1
		t.Run(agent.name+map[bool]string{false: " between turns", true: " within a turn"}[within], func(t *testing.T) {
			t.Parallel()
			config := agent.config(t)
			f, model := agent.pool(t, func(write func(string) agenttest.Step) []agenttest.Step {
				later := func(r agenttest.Request) agenttest.Reply {
					if strings.Contains(r.Last, "the third") {
						return agent.shell("cat one.txt out.txt; pwd")(r)
					}
					return agenttest.Reply{Text: "LAST " + r.Last}
				}
				return []agenttest.Step{
					agenttest.Say("first"), write("one > one.txt && echo two"), write("three"), agenttest.Say("second"),
					func(r agenttest.Request) agenttest.Reply {
						if within && r.Try == 0 {
							return agenttest.Reply{Hang: true}
						}
						return later(r)
					},
					later,
				}
			})
			l := &lot{}
			l.serve, l.args = f.serve()
			l.worker = f.worker("--slots", "1", "--config", config)
			submit := []string{"--config", config, "--interactive"}
			if agent.skills {
				submit = append(submit, "--skill", writtenSkill(t))
			}
			l.talk = agent.begin(f, submit...)
			l.seen(jobs.CapsuleStored, 1)
			if agent.permits != "" {
				l.run("job", "set", l.id, "--mode", agent.permits) // as it is by then, also for the next process
			}
			l.run("send", l.id, "the second")
			l.has(l.seen(jobs.CapsuleStored, 2), `"turn":2`)
			if within {
				l.run("send", l.id, "the third")
				l.before(model, 4)
			}
			l.elsewhere(config)
			l.has(l.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":2`)
			if !within {
				l.run("send", l.id, "the third")
			}
			l.eventually(60*time.Second, "it does what it had not answered", func() bool {
				return strings.Contains(l.all(jobs.ToolEnded), `one\nthree\n/workspace`)
			})
			l.rests(l.id)
			l.run("job", "stop", l.id)
			l.run("wait", "--timeout", patience(60), l.id)
			for _, text := range []string{"first", "second"} {
				if n := strings.Count(l.all(jobs.Message), `"text":"`+text+`"`); n != 1 {
					t.Errorf("%s was told %d times", text, n)
				}
			}
			if requests := model.Requests(); agent.skills && (len(requests[0].Words) == 0 || len(requests[len(requests)-1].Words) == 0) {
				t.Error("the first or the last request does not tell of the skill")
			}
			rec, patch := l.record(l.id), l.run("job", "diff", l.id)
			if rec.Outcome != jobs.Success || rec.Attempt != 2 || !strings.Contains(patch, "+one") || !strings.Contains(patch, "+three") {
				t.Errorf("%s %s (%s) in attempt %d, with\n%s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, patch)
			}
			l.gapless(l.events(l.id))
		})
	}
}
