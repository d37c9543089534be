package codex

import (
	"bytes"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

func TestCodexPlan(t *testing.T) {
	l := adaptertest.Launch("codex")
	l.Job.Prompt, l.Job.Agent.Model = "two\nlines", "gpt-5.5"
	p := adaptertest.Plan(t, Adapter{}, l)
	args := strings.Join(p.Args, " ")
	for _, want := range []string{"codex exec --json ", ` base_url="http://127.0.0.1:3128/v1"`, "--disable unbounded_connection_retries", "-m gpt-5.5 -"} {
		if !strings.Contains(strings.ReplaceAll(args, ",", ", "), want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
	if !strings.HasSuffix(args, " -") || string(p.Stdin[0]) != "two\nlines" || p.KeepStdin {
		t.Errorf("plan %+v", p)
	}
	l.Resume = "thread-1"
	if args := adaptertest.Plan(t, Adapter{}, l).Args; args[1] != "exec" || args[2] != "resume" || args[len(args)-2] != "thread-1" || args[len(args)-1] != "-" {
		t.Errorf("resumed with %q", args)
	}
}

func TestCodexVerdicts(t *testing.T) {
	const begun = `{"type":"turn.started"}`
	again := func(why string) string {
		return begun + "\n" + `{"type":"error","message":"Reconnecting... 2/4 (` + why + `)"}`
	}
	failed := func(why string) string {
		return begun + "\n" + `{"type":"turn.failed","error":{"message":"` + why + `"}}`
	}
	for _, tt := range []struct {
		name, lines string
		code        int
		reason      jobs.Reason
		hopeless    jobs.Reason
	}{
		{"hopeless, then ended", again("unexpected status 401 Unauthorized: x"), 143, jobs.Unauthorized, jobs.Unauthorized},
		{"tried again, then ended", again("Connection failed: x"), 143, jobs.ModelUnavailable, ""},
		{"tried again, and it helped", again("Connection failed: x") + "\n" + `{"type":"item.completed","item":{"type":"agent_message"}}`, 1, jobs.AgentCrashed, ""},
		{"server error", failed("unexpected status 503 Service Unavailable"), 1, jobs.ModelUnavailable, ""},
		{"request refused", failed("unexpected status 400 Bad Request: x"), 1, jobs.AgentFailed, ""},
		{"killed after a good turn", begun + "\n" + `{"type":"turn.completed"}`, 137, "", ""},
		{"not found", "", 127, jobs.AgentMissing, ""},
	} {
		d := Adapter{}.Decoder(adaptertest.Launch("codex"))
		r := adaptertest.Feed(d, strings.Split(tt.lines, "\n")...)
		if _, end := d.Exit(tt.code, ""); end.Reason != tt.reason || (end.Outcome == jobs.Success) != (tt.reason == "") || r.Hopeless != tt.hopeless {
			t.Errorf("%s: %+v, hopeless %q", tt.name, end, r.Hopeless)
		}
	}
}

// Codex refuses a prompt within a compaction that was asked for, so it waits for the end of
// that turn, also one that is a line of Codex's own protocol; the agent is not idle before.
func TestPromptsWaitForACompaction(t *testing.T) {
	started := func(turn string) string {
		return `{"method":"turn/started","params":{"threadId":"t","turn":{"id":"` + turn + `"}}}`
	}
	over := func(turn, status string) string {
		return `{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"` + turn + `","status":"` + status + `"}}}`
	}
	for _, tt := range []struct {
		name, within string // a turn is open when the compaction is asked for
		lines        []string
	}{
		{"compacted", "", []string{`{"id":4,"result":{}}`, started("c"), over("c", "completed")}},
		{"begun before the answer", "", []string{started("c"), `{"id":4,"result":{}}`, over("c", "completed")}},
		{"failed", "", []string{`{"id":4,"result":{}}`, started("c"), over("c", "failed")}},
		{"refused", "", []string{`{"id":4,"error":{"code":-32600,"message":"no"}}`}},
		{"within a turn", "w", []string{`{"id":4,"result":{}}`, over("w", "interrupted"), started("c"), over("c", "completed")}},
	} {
		l := adaptertest.Launch("codex")
		l.Job.Agent.Interactive = true
		d := newAppServer(l)
		adaptertest.Feed(d, `{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"}}}`, `{"id":3,"result":{"turn":{"id":"a"}}}`, started("a"), over("a", "completed"))
		if tt.within != "" {
			adaptertest.Feed(d, started(tt.within))
		}
		asked, err := d.Raw(jobs.NewID(), []byte(`{"method":"thread/compact/start"}`))
		if err != nil || len(asked) != 1 {
			t.Fatalf("%s: %q, %v", tt.name, asked, err)
		}
		raw, err := d.Raw(jobs.NewID(), []byte(`{"method":"turn/start","params":{"input":[{"type":"text","text":"RAW"}],"effort":"low"}}`))
		if said := d.Say(jobs.NewID(), "SAID"); err != nil || len(raw)+len(said) > 0 {
			t.Errorf("%s: %q and %q were sent, %v", tt.name, raw, said, err)
		}
		for i, line := range tt.lines {
			r := adaptertest.Feed(d, line)
			sent := string(bytes.Join(r.Reply, nil))
			if last := i == len(tt.lines)-1; last != (strings.Contains(sent, "SAID") && strings.Contains(sent, `"effort":"low"`)) || r.State != agent.Working {
				t.Errorf("%s, after %s: state %v, sent %s", tt.name, line, r.State, sent)
			}
		}
	}
}

// Its plan mode is no policy of approval, so it is set by itself, before the first prompt; any
// other mode ends it.
func TestPlanMode(t *testing.T) {
	l := adaptertest.Launch("codex")
	l.Job.Agent.Interactive, l.Mode = true, "plan"
	d := newAppServer(l)
	begun := adaptertest.Feed(d, `{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"t"},"model":"m"}}`)
	sent := string(bytes.Join(begun.Reply, []byte("\n")))
	planned := strings.Index(sent, `"collaborationMode":{"mode":"plan","settings":{"model":"m"}}`)
	if planned < 0 || planned > strings.Index(sent, `"method":"turn/start"`) || strings.Contains(sent, "approvalPolicy") {
		t.Errorf("begun in plan mode with %s", sent)
	}
	for _, tt := range []struct {
		to        control.Settings
		want, not string
	}{
		{control.Settings{Model: "n", Effort: "low"}, `"effort":"low","model":"n"`, "collaborationMode"},
		{control.Settings{Mode: "never"}, `"approvalPolicy":"never","collaborationMode":{"mode":"default","settings":{"model":"n","reasoning_effort":"low"}}`, "plan"},
		{control.Settings{Mode: "untrusted"}, `"approvalPolicy":"untrusted"`, "collaborationMode"},
	} {
		lines, err := d.Set(jobs.NewID(), tt.to)
		if got := string(bytes.Join(lines, nil)); err != nil || !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%+v: %v, %s", tt.to, err, got)
		}
	}
}

func TestTerminalsInPlans(t *testing.T) {
	l := adaptertest.Launch("codex")
	l.Variable, l.Job.Agent.Terminals = "PENSTOCK_INSIDE", true
	if all := strings.Join(adaptertest.Plan(t, Adapter{}, l).Args, " "); !strings.Contains(all, `mcp_servers.penstock={command="penstock",args=["terminals"],env_vars=["PENSTOCK_INSIDE"]`) {
		t.Errorf("arguments %s", all)
	}
}
