package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	agents "github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/builtin"
)

// open puts the repository where every user may read it.
func (f *fixture) open() {
	f.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "penstock-test-") // its own is closed to other users
	f.must(err)
	f.Cleanup(func() { os.RemoveAll(dir) })
	f.must(os.Chmod(dir, 0o755))
	f.git("clone", "-q", "--no-hardlinks", f.repo, filepath.Join(dir, "repo"))
	f.repo = filepath.Join(dir, "repo")
}

// abroad starts a worker with nothing but a credential: in a root directory of
// its own, and as another user where this one is root.
func (f *fixture) abroad(agent string) {
	f.Helper()
	as := f.credentials()[jobs.RoleWorker]
	base := f.TempDir()
	if os.Geteuid() == 0 {
		base = "/opt" // open to other users, and not hidden in a jail
	}
	home, err := os.MkdirTemp(base, "penstock-test-")
	f.must(err)
	f.Cleanup(func() { os.RemoveAll(home) })
	f.must(os.Chmod(home, 0o755))
	for name, mode := range map[string]os.FileMode{"bin": 0o755, "data": 0o700, "tmp": 0o700} {
		f.must(os.Mkdir(filepath.Join(home, name), mode))
	}
	found, err := builtin.Agents(agents.Config{Path: os.Getenv("PATH")}).Find(agent)
	f.must(err)
	for name, from := range map[string]string{"penstock": lookPath(f.T, "penstock"), agent: found.Args[0]} {
		if to := filepath.Join(home, "bin", name); os.Link(from, to) != nil {
			copyProgram(f.T, from, to)
		}
	}
	secret, err := os.ReadFile(as[3])
	f.must(err)
	f.must(os.WriteFile(filepath.Join(home, "creds"), secret, 0o600))
	data := filepath.Join(home, "data")
	cmd := f.command("worker", "--admin", "", "--drain", "1s", "--slots", "1",
		"--server", as[1], "--creds", filepath.Join(home, "creds"), "--data", data)
	cmd.Path, cmd.Dir = filepath.Join(home, "bin", "penstock"), home
	cmd.Env = append(cmd.Env, "PENSTOCK_DATA="+data, "HOME="+data, "TMPDIR="+filepath.Join(home, "tmp"), "PATH="+filepath.Join(home, "bin")+":/usr/local/bin:/usr/bin:/bin")
	if os.Geteuid() == 0 {
		const nobody = 65534
		for _, name := range []string{"data", "tmp", "creds"} {
			f.must(os.Chown(filepath.Join(home, name), nobody, nobody))
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	f.launch(cmd, "slots on")
}

// A real agent has two turns behind it when its worker is killed with -9 in the
// third. Another worker with another directory, as another user, goes on with the
// conversation, with the files and the commit, and with the prompt that was not
// answered.
func TestAConversationGoesOnAbroad(t *testing.T) {
	t.Parallel()
	for _, agent := range realAgents {
		if agent.name == "gemini" {
			continue // its program is not one file
		}
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, model := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
				later := func(r agenttest.Request) agenttest.Reply {
					if strings.Contains(r.Last, "the third") {
						return agent.shell("git log --format=%s -1; cat one.txt out.txt; pwd")(r)
					}
					return agenttest.Reply{Text: "LAST " + r.Last}
				}
				return []agenttest.Step{
					write("one > one.txt && git add one.txt && git -c user.name=A -c user.email=a@b commit -qm one && echo two"),
					agenttest.Say("first"),
					write("three"),
					agenttest.Say("second"),
					func(r agenttest.Request) agenttest.Reply {
						if r.Try == 0 {
							return agenttest.Reply{Hang: true}
						}
						return later(r)
					},
					later,
				}
			})
			f.open()
			f.serve()
			w := f.worker("--slots", "1")
			k := agent.begin(f, "--interactive")
			k.seen(jobs.CapsuleStored, 1)
			f.run("send", k.id, "the second")
			k.has(k.seen(jobs.CapsuleStored, 2), `"turn":2`, `"commits":2`, `"heard":["`)
			f.run("send", k.id, "the third")
			k.before(model, 4)
			w.kill()
			f.worker("--slots", "1", "--queues", "another") // which removes what was killed, and takes nothing
			f.abroad(agent.name)
			k.has(k.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":2`)
			f.eventually(60*time.Second, "it does what it had not answered", func() bool {
				return strings.Contains(k.all(jobs.ToolEnded), `one\none\nthree\n/workspace`)
			})
			f.run("job", "cancel", k.id)
			f.try("wait", k.id)
			rec, patch := f.record(k.id), f.run("job", "diff", k.id)
			if rec.Outcome != jobs.Cancellation || rec.Attempt != 2 || !strings.Contains(patch, "+one") || !strings.Contains(patch, "+three") {
				t.Errorf("%s %s (%s) in attempt %d, with\n%s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, patch)
			}
			f.gapless(f.events(k.id))
		})
	}
}

// The agent alone is killed with -9 within its turn: the next attempt goes on
// with its conversation, with what it had done within that turn.
func TestAKilledAgentGoesOn(t *testing.T) {
	t.Parallel()
	for _, agent := range realAgents {
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, model := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
				return []agenttest.Step{
					agenttest.Say("first"),
					write("within the second"),
					func(r agenttest.Request) agenttest.Reply {
						if r.Try == 0 {
							return agenttest.Reply{Hang: true}
						}
						return agent.shell("cat out.txt")(r)
					},
					func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} },
				}
			})
			f.serve("--slots", "1")
			k := agent.begin(f, "--interactive")
			k.seen(jobs.CapsuleStored, 1)
			f.run("send", k.id, "the second")
			k.before(model, 2)
			f.killAgent(k.id)
			k.has(k.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":2`)
			k.has(k.seen(jobs.CapsuleStored, 3), `"turn":3`)
			f.run("job", "stop", k.id)
			f.run("wait", k.id)
			if rec := f.record(k.id); rec.Outcome != jobs.Success || rec.Attempt != 2 || !strings.Contains(k.all(jobs.ToolEnded), "within the second") {
				t.Errorf("%s %s (%s) in attempt %d", rec.Outcome, rec.Reason, rec.Message, rec.Attempt)
			}
			f.gapless(f.events(k.id))
		})
	}
}

// An agent of one turn that is killed with -9 within it goes on with it, in the
// next attempt.
func TestAKilledTurnGoesOn(t *testing.T) {
	t.Parallel()
	for _, agent := range realAgents {
		t.Run(agent.name, func(t *testing.T) {
			t.Parallel()
			f, model := agent.fixture(t, func(write func(string) agenttest.Step) []agenttest.Step {
				return []agenttest.Step{write("first"), func(r agenttest.Request) agenttest.Reply {
					if strings.Contains(r.Last, "goes on in a new process") {
						return agent.shell("echo second >> out.txt")(r)
					}
					return agenttest.Reply{Text: "done", Hang: r.Turn == 1}
				}}
			})
			f.serve("--slots", "1")
			k := agent.begin(f)
			k.before(model, 1)
			f.killAgent(k.id)
			f.run("wait", k.id)
			k.has(k.seen(jobs.SessionContinued, 1), `"how":"resumed"`, `"turn":1`)
			if rec, patch := f.record(k.id), f.run("job", "diff", k.id); rec.Attempt != 2 || !strings.Contains(patch, "+first\n+second\n") {
				t.Errorf("attempt %d, with\n%s", rec.Attempt, patch)
			}
		})
	}
}

// killAgent kills the process of a job's agent, and nothing else of it.
func (f *fixture) killAgent(id string) {
	f.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	f.must(err)
	killed := 0
	for _, file := range processes {
		environ, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(environ), "PENSTOCK_JOB="+id) {
			continue
		}
		args, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if pid, wrong := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && wrong == nil && (strings.Contains(string(args), "stream-json") || strings.Contains(string(args), "model_providers.penstock") || strings.Contains(string(args), "--acp") || strings.Contains(string(args), "/opencode\x00")) {
			f.must(syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	if killed == 0 {
		f.Fatal("no process of the agent was found")
	}
}

// A realAgent is one whose conversations can go on elsewhere.
type realAgent struct {
	name, api, model string
	shell            func(command string) agenttest.Step
	ask              func(question map[string]any) agenttest.Step // nil: it cannot
}

var realAgents = []realAgent{
	{"claude", "ANTHROPIC", "", func(command string) agenttest.Step {
		return agenttest.Use("Bash", map[string]any{"command": command, "description": "run"})
	}, func(question map[string]any) agenttest.Step { return ask(question) }},
	{"codex", "OPENAI", "gpt-5.5", func(command string) agenttest.Step {
		return agenttest.Use("exec_command", map[string]any{"cmd": command})
	}, func(question map[string]any) agenttest.Step {
		question["id"] = "it" // it takes no more fields than it knows
		delete(question, "multiSelect")
		return agenttest.Use("request_user_input", map[string]any{"questions": []any{question}})
	}},
	{"gemini", "GOOGLE", "gemini-2.5-flash", func(command string) agenttest.Step {
		return agenttest.Use("run_shell_command", map[string]any{"command": command, "description": "run"})
	}, nil},
	{"opencode", "ANTHROPIC", "claude-sonnet-4-5", func(command string) agenttest.Step {
		return agenttest.Use("bash", map[string]any{"command": command, "description": "run"})
	}, nil},
}

// fixture is a pool whose agent is installed here.
func (a realAgent) fixture(t *testing.T, steps func(write func(text string) agenttest.Step) []agenttest.Step) (*fixture, *agenttest.Model) {
	t.Helper()
	a.require(t)
	return a.pool(t, steps)
}

// require skips a test where the agent is not installed.
func (a realAgent) require(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath(a.name); err != nil {
		skip(t, a.name, "no %s in PATH", a.name)
	}
}

// skillWord is in the description of a skill, for the model to look for.
const skillWord = "tides-of-harbours"

// pool is a pool whose agent has a model that plays a script. What the script's steps
// write, they write to out.txt.
func (a realAgent) pool(t *testing.T, steps func(write func(text string) agenttest.Step) []agenttest.Step) (*fixture, *agenttest.Model) {
	t.Helper()
	f := newFixture(t)
	model := agenttest.New(agenttest.Script{On: "CARRY", Steps: steps(func(text string) agenttest.Step { return a.shell("echo " + text + " > out.txt") })}).Watch(skillWord)
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = []string{a.api + "_API_KEY=" + keyPrefix + "capsule", "PENSTOCK_MODEL_" + a.api + "_URL=" + upstream.URL}
	return f, model
}

// begin submits a job.
func (a realAgent) begin(f *fixture, args ...string) talk {
	f.Helper()
	args = append([]string{"submit", "CARRY", "--agent", a.name, "--repo", f.repo, "-o", "id"}, args...)
	if a.model != "" {
		args = append(args, "--model", a.model)
	}
	k := talk{f, strings.TrimSpace(f.run(args...))}
	f.Cleanup(func() {
		if f.Failed() {
			said, _, _ := f.try("logs", k.id)
			f.Log(said)
		}
	})
	return k
}

// before waits until the model is asked for a step.
func (k talk) before(model *agenttest.Model, turn int) {
	k.Helper()
	k.eventually(60*time.Second, "the model is asked", func() bool {
		return slices.ContainsFunc(model.Requests(), func(r agenttest.Request) bool { return r.Turn == turn })
	})
}

// all is the data of all events of a kind.
func (k talk) all(kind jobs.Kind) string {
	k.Helper()
	var b strings.Builder
	for _, e := range k.events(k.id) {
		if e.Kind == kind {
			b.Write(e.Data)
			b.WriteByte('\n')
		}
	}
	return b.String()
}
