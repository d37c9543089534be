package codex

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
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

func TestTerminalsInPlans(t *testing.T) {
	l := adaptertest.Launch("codex")
	l.Variable, l.Job.Agent.Terminals = "PENSTOCK_INSIDE", true
	if all := strings.Join(adaptertest.Plan(t, Adapter{}, l).Args, " "); !strings.Contains(all, `mcp_servers.penstock={command="penstock",args=["terminals"],env_vars=["PENSTOCK_INSIDE"]`) {
		t.Errorf("arguments %s", all)
	}
}
