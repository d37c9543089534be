package opencode_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/opencode"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opencode speaks the protocol in interactive jobs.
func TestRealOpencodeInteractive(t *testing.T) {
	agents, program := adaptertest.Program(t, opencode.Adapter{})
	run := func(command string) agenttest.Step {
		return agenttest.Use("bash", map[string]any{"command": command, "description": "run it"})
	}
	model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{run("echo hello > hello.txt"), adaptertest.Echo, run("sleep 1000"), adaptertest.Echo}})
	srv := httptest.NewServer(model)
	defer srv.Close()
	l := adaptertest.Prompted(t, "opencode", "FIRST", program)
	l.Gate = srv.URL
	l.Job.Agent.Interactive, l.Job.Agent.Model = true, "claude-sonnet-4-5"
	c := &adaptertest.Conversation{}
	n := 0
	c.OnEvent = func(e event.Event) [][]byte {
		switch {
		case e.Kind == jobs.ToolStarted && n == 0:
			n++ // it waits for its turn
			return c.Decoder.(agent.Speaker).Say(jobs.NewID(), "sleep")
		case e.Kind == jobs.ToolStarted && n == 1:
			n++
			return c.Decoder.(agent.Speaker).Interrupt()
		case e.Kind == jobs.TurnEnded && n == 2:
			n++
			return c.Decoder.(agent.Speaker).Say(jobs.NewID(), "go on")
		}
		return nil
	}
	home := t.TempDir()
	c.Home = home
	r := adaptertest.Talk(t, agents, l, c)
	var how []string
	for _, e := range r.Events {
		if e.Kind == jobs.TurnEnded {
			how = append(how, adaptertest.DataOf[event.TurnEnded](t, e).Status)
		}
	}
	if _, err := os.Stat(filepath.Join(l.Cwd, "hello.txt")); err != nil || !slices.Equal(how, []string{"ok", "interrupted", "ok"}) || r.End.Outcome != jobs.Success {
		t.Errorf("%v, turns %q, ended %+v", err, how, r.End)
	}
	l.Resume, l.Attempt, l.Prompt = r.Total.Session, 2, "the check failed"
	again := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Home: home})
	if again.End.Outcome != jobs.Success || !strings.Contains(again.Data(jobs.Message), "told the check failed") {
		t.Errorf("resumed: %+v, %s", again.End, again.Data(jobs.Message))
	}
	if t.Failed() {
		adaptertest.Log(t, r)
		adaptertest.Log(t, again)
	}
}

func TestJailedOpencodeIsInstructed(t *testing.T) {
	agents, program := adaptertest.Program(t, opencode.Adapter{})
	l := adaptertest.Prompted(t, "opencode", "hello", program)
	l.Job.Agent.Model = "claude-sonnet-4-5"
	adaptertest.Instructed(t, agents, l, "anthropic")
}

func TestJailedOpencodeUsesServers(t *testing.T) {
	agents, program := adaptertest.Program(t, opencode.Adapter{})
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "opencode", "", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "claude-sonnet-4-5", interactive
		adaptertest.UsesServer(t, agents, l, "tiny_look")
	}
}

// A plugin of the repository may be a link to a file with any name, and is imported in both forms.
func TestJailedOpencodeImportsNoPlugin(t *testing.T) {
	agents, program := adaptertest.Program(t, opencode.Adapter{})
	adaptertest.RequireJail(t)
	for _, interactive := range []bool{false, true} {
		l := adaptertest.Prompted(t, "opencode", "hello", program)
		l.Job.Agent.Model, l.Job.Agent.Interactive = "claude-sonnet-4-5", interactive
		plugins := filepath.Join(l.Cwd, ".opencode/plugins")
		code := []byte(`require("child_process").execSync("touch /workspace/trapped")`)
		if err := errors.Join(os.MkdirAll(plugins, 0o755), os.WriteFile(filepath.Join(l.Cwd, "code.js"), code, 0o644), os.Symlink("../../code.js", filepath.Join(plugins, "x.js"))); err != nil {
			t.Fatal(err)
		}
		session := gate.NewSession("s", adaptertest.JailKey, gate.Limits{})
		r := adaptertest.Jailed(t, agents, l, adaptertest.Gated{Gate: adaptertest.NewGate(t, "anthropic", agenttest.New()), Session: session})
		if _, err := os.Lstat(filepath.Join(l.Cwd, "trapped")); err == nil || r.End.Outcome != jobs.Success || session.Meter().Violations > 0 {
			t.Errorf("interactive %v: imported %v, ended %+v, meter %+v", interactive, err == nil, r.End, session.Meter())
			adaptertest.Log(t, r)
		}
	}
}

// stored is all that lies in a home.
func stored(t *testing.T, home string) (all []byte) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(home), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(home, path))
		all = append(all, content...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// hidden masks a secret.
type hidden string

func (h hidden) Line(line []byte) []byte { return h.Mask(line) }

func (h hidden) Mask(value []byte) []byte {
	return bytes.ReplaceAll(value, []byte(h), bytes.Repeat([]byte("*"), len(h)))
}

// A process is killed within its turn. Another one in another home goes on with what a capsule has of the
// conversation: all but a secret that a command has printed.
func TestRealOpencodeGoesOnWithoutSecrets(t *testing.T) {
	agents, program := adaptertest.Program(t, opencode.Adapter{})
	const secret = "the-secret-of-the-job"
	for _, interactive := range []bool{false, true} {
		c := &adaptertest.Conversation{Home: t.TempDir()}
		model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
			agenttest.Use("bash", map[string]any{"command": "yes \"says $(cat token)\" | head -n 500", "description": "run it"}),
			func(r agenttest.Request) agenttest.Reply {
				if !strings.Contains(r.Last, "go on") {
					c.Abort()
					return agenttest.Reply{Hang: true}
				}
				return adaptertest.Echo(r)
			},
		}})
		srv := httptest.NewServer(model)
		l := adaptertest.Prompted(t, "opencode", "FIRST", program)
		l.Gate, l.Job.Agent.Interactive, l.Job.Agent.Model = srv.URL, interactive, "claude-sonnet-4-5"
		if err := os.WriteFile(filepath.Join(l.Cwd, "token"), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		r := adaptertest.Talk(t, agents, l, c)
		var packed bytes.Buffer
		files, other := agents.All()[0].Conversation, t.TempDir()
		if err := errors.Join(
			capsule.Conversation{Home: c.Home, Files: files, ID: r.Total.Session}.Pack(&packed, hidden(secret)),
			capsule.Conversation{Home: other, Files: files, ID: r.Total.Session}.Unpack(&packed),
		); err != nil {
			t.Fatal(err)
		}
		l.Resume, l.Attempt, l.Prompt = r.Total.Session, 2, "go on"
		again := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Home: other})
		srv.Close()
		requests := model.Requests()
		last := requests[len(requests)-1]
		if again.End.Outcome != jobs.Success || again.Total.Session != l.Resume || last.Turn != 1 || !strings.Contains(again.Data(jobs.Message), "go on") {
			t.Errorf("interactive %v: ended %+v, conversation %s after %s, %s", interactive, again.End, again.Total.Session, l.Resume, again.Data(jobs.Message))
		}
		said := string(stored(t, other))
		if !strings.Contains(said, "says ****") || strings.Contains(said, secret) {
			t.Errorf("interactive %v: the other home has the secret, or not what the command printed", interactive)
		}
		if t.Failed() {
			adaptertest.Log(t, r)
			adaptertest.Log(t, again)
		}
	}
}

// It has instructions as well.
func TestJailedOpencodeHasSkills(t *testing.T) {
	agents, program := adaptertest.Program(t, opencode.Adapter{})
	l := adaptertest.Prompted(t, "opencode", "LOOK", program)
	l.Job.Agent.Model, l.Job.Agent.Interactive = "claude-sonnet-4-5", true
	c := adaptertest.SkillCase{API: "anthropic", Shell: func(command string) agenttest.Step {
		return agenttest.Use("bash", map[string]any{"command": command, "description": "look"})
	}}
	c.Skilled(t, agents, l)
}
