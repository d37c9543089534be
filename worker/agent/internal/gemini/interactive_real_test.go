package gemini_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/gemini"
	"github.com/penstock-run/penstock/worker/gate"
)

// talks is an interactive launch of Gemini CLI, whose model plays a script.
func talks(t *testing.T, prompt string, script agenttest.Script) (*agent.Agents, agent.Launch, *agenttest.Model) {
	t.Helper()
	agents, program := adaptertest.Program(t, gemini.Adapter{})
	model := agenttest.New(script)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	l := adaptertest.Prompted(t, "gemini", prompt, program)
	l.Gate, l.Job.Agent.Interactive, l.Job.Agent.Model = srv.URL, true, "gemini-2.5-flash"
	return agents, l, model
}

// last is a model that does what it was told last.
func last(r agenttest.Request) agenttest.Reply {
	for _, word := range []string{"wait", "ask"} {
		if strings.HasSuffix(r.Last, word) {
			return run(map[string]string{"wait": "sleep 1000", "ask": "touch asked"}[word])(r)
		}
	}
	return adaptertest.Echo(r)
}

// A person speaks during a turn, interrupts the next one, has the agent ask for permission, refuses it, and
// speaks again. A new process goes on, and reports nothing twice.
func TestRealGeminiInteractive(t *testing.T) {
	agents, l, model := talks(t, "/FIRST", agenttest.Script{On: "FIRST", Steps: []agenttest.Step{run("echo hello > hello.txt"), last}})
	c := &adaptertest.Conversation{Home: t.TempDir()}
	c.OnEvent = func(e event.Event) [][]byte {
		speaker := c.Decoder.(agent.Speaker)
		switch {
		case e.Kind == jobs.ToolStarted && e.Turn == 1:
			return speaker.Say(jobs.NewID(), "wait") // for its turn
		case e.Kind == jobs.ToolStarted && e.Turn == 2:
			return speaker.Interrupt()
		case e.Kind == jobs.TurnEnded && e.Turn == 2:
			return append(adaptertest.Set(t, speaker, control.Settings{Mode: "default"}), speaker.Say(jobs.NewID(), "ask")...)
		case e.Kind == jobs.AskOpened:
			_, lines, err := speaker.Answer(control.Message{Deny: true})
			if err != nil {
				t.Error(err)
			}
			return lines
		case e.Kind == jobs.TurnEnded && e.Turn == 3:
			return speaker.Say(jobs.NewID(), "?more")
		}
		return nil
	}
	r := adaptertest.Talk(t, agents, l, c)
	if got := statuses(t, r); !slices.Equal(got, []string{"ok", "interrupted", "ok", "ok"}) || r.End.Outcome != jobs.Success {
		t.Errorf("turns %q, ended %+v", got, r.End)
	}
	for name, want := range map[string]bool{"hello.txt": true, "asked": false} {
		if _, err := os.Stat(filepath.Join(l.Cwd, name)); (err == nil) != want {
			t.Errorf("%s is there: %v", name, err == nil)
		}
	}
	if modes := r.Data(jobs.Notice); !strings.Contains(modes, `"default"`) || strings.Contains(r.Data(jobs.Message), "MODE_UPDATE") {
		t.Errorf("notices %s, messages %s", modes, r.Data(jobs.Message))
	}
	l.Resume, l.Attempt, l.Prompt = r.Total.Session, 2, "the check failed"
	again := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Home: c.Home})
	if got := again.Data(jobs.Message); again.End.Outcome != jobs.Success || again.Count(jobs.Message) != 1 || !strings.Contains(got, "told the check failed") || again.Count(jobs.ToolStarted) > 0 {
		t.Errorf("resumed: %+v, %d tools, %s", again.End, again.Count(jobs.ToolStarted), got)
	}
	requests := model.Requests()
	for _, told := range []string{"FIRST", "wait", "ask", "?more", "the check failed"} {
		if !strings.Contains(requests[len(requests)-1].First, told) {
			t.Errorf("the model does not know of %q any more", told)
		}
	}
	if strings.Contains(requests[len(requests)-1].First, "/penstock ") {
		t.Error("the model was told where the replay ends")
	}
	if t.Failed() {
		adaptertest.Log(t, r)
		adaptertest.Log(t, again)
	}
}

// A long conversation is replayed while the program takes prompts already. Nothing of it is reported
// as new, and no prompt is sent before its end.
func TestALongConversationIsReplayed(t *testing.T) {
	agents, l, _ := talks(t, "FIRST", agenttest.Script{On: "FIRST", Steps: []agenttest.Step{last}})
	home := t.TempDir()
	l.Resume, l.Prompt = l.Session, "go on"
	chats := filepath.Join(home, ".gemini/tmp/penstock/chats")
	var chat strings.Builder
	fmt.Fprintf(&chat, `{"sessionId":%q,"projectHash":"x","kind":"main"}`+"\n", l.Session)
	for n := range 300 {
		fmt.Fprintf(&chat, `{"id":"u%d","type":"user","content":"FIRST %d"}`+"\n"+`{"id":"g%d","type":"gemini","content":"EARLIER"}`+"\n", n, n, n)
	}
	// The file of a job that took one prompt, as it is when its process was killed.
	name := func(at time.Time) string {
		return filepath.Join(chats, "session-"+at.UTC().Format("2006-01-02T15-04")+"-"+l.Session[:8]+".jsonl")
	}
	begun := fmt.Sprintf(`{"sessionId":%q,"projectHash":"x","kind":"main"}`+"\n", l.Session) // by the process that was killed
	if err := errors.Join(os.MkdirAll(chats, 0o700), os.WriteFile(name(time.Now()), []byte(chat.String()+`{"torn":`), 0o600),
		os.WriteFile(name(time.Now().Add(time.Minute)), []byte(begun), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Home: home})
	if got := r.Data(jobs.Message); r.End.Outcome != jobs.Success || !strings.Contains(got, "told go on") || strings.Contains(got, "EARLIER") || r.Count(jobs.MessageDelta) != 1 {
		t.Errorf("%+v, %d pieces, %s", r.End, r.Count(jobs.MessageDelta), got)
	}
}

// The repository's settings start nothing, the agent uses git, and counts what the gate counts.
func TestJailedGeminiInteractive(t *testing.T) {
	adaptertest.RequireJail(t)
	agents, l, _ := talks(t, "", agenttest.Script{})
	trap(t, l.Cwd)
	model := agenttest.New(agenttest.Script{On: "EDIT", Steps: []agenttest.Step{run("git status && env && echo hello > hello.txt"), agenttest.Say("done")}})
	session := gate.NewSession("s", adaptertest.JailKey, gate.Limits{})
	l.Job.Prompt = "EDIT"
	r := adaptertest.Jailed(t, agents, l, adaptertest.Gated{Gate: adaptertest.NewGate(t, "google", model), Session: session})
	trapped, err := filepath.Glob(filepath.Join(l.Cwd, "trapped*"))
	if err != nil || len(trapped) > 0 || r.End.Outcome != jobs.Success {
		t.Errorf("what the repository's settings name has run: %v, err %v; ended %+v", trapped, err, r.End)
	}
	if m := session.Meter(); m.Violations+m.Strangers != 0 || r.Total.Usage != m.Usage || r.Total.Session != l.Session {
		t.Errorf("meter %+v, the agent counts %+v", m, r.Total)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

func TestRealGeminiSeesImages(t *testing.T) {
	agents, l, model := talks(t, "FIRST", agenttest.Script{On: "FIRST", Steps: []agenttest.Step{agenttest.Say("seen")}})
	l.Images = []control.Image{adaptertest.Picture(t, 10)}
	adaptertest.SeesImages(t, agents, l, model)
}

// statuses are how the turns of a run ended.
func statuses(t *testing.T, r adaptertest.Run) (all []string) {
	t.Helper()
	for _, e := range r.Events {
		if e.Kind == jobs.TurnEnded {
			all = append(all, adaptertest.DataOf[event.TurnEnded](t, e).Status)
		}
	}
	return all
}
