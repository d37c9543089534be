package gemini

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
)

func TestGeminiPlan(t *testing.T) {
	l := adaptertest.Launch("gemini")
	l.Job.Prompt, l.Job.Agent.Model, l.Job.Agent.MaxTurns = "/clear\nme", "gemini-new", 7
	p := adaptertest.Plan(t, Adapter{}, l)
	if string(p.Stdin[0]) != "The request is:\n\n/clear\nme" || p.KeepStdin {
		t.Errorf("is told %q", p.Stdin)
	}
	if adaptertest.FlagValue(p.Args, "--model") != "gemini-new" || adaptertest.FlagValue(p.Args, "--approval-mode") != "yolo" || adaptertest.FlagValue(p.Args, "--session-id") != l.Session || slices.Contains(p.Args, "--resume") {
		t.Errorf("arguments %q", p.Args)
	}
	for _, want := range []string{"GOOGLE_GEMINI_BASE_URL=" + l.Gate, "GEMINI_API_KEY=" + l.Key, "GEMINI_CLI_TRUST_WORKSPACE=false"} {
		if !slices.Contains(p.Env, want) {
			t.Errorf("%s is not in %q", want, p.Env)
		}
	}
	settings := func(p agent.Plan) (s struct {
		Model struct{ MaxSessionTurns int }
		Tools struct{ Exclude []string }
	}) {
		t.Helper()
		for _, kv := range p.Env {
			if value, ok := strings.CutPrefix(kv, settingsVariable+"="); ok {
				if err := json.Unmarshal([]byte(value), &s); err != nil {
					t.Fatal(err)
				}
			}
		}
		return s
	}
	if s := settings(p); s.Model.MaxSessionTurns != 7 || len(s.Tools.Exclude) != 2 {
		t.Errorf("settings %+v", s)
	}
	l.Gate, l.Resume, l.Attempt, l.Job.Agent.Args = "", "s-1", 2, []string{"--approval-mode=plan"}
	p = adaptertest.Plan(t, Adapter{}, l)
	if adaptertest.FlagValue(p.Args, "--resume") != "s-1" || slices.Contains(p.Args, "--session-id") || slices.Contains(p.Args, "--approval-mode") {
		t.Errorf("resumed with %q", p.Args)
	}
	if s := settings(p); len(s.Tools.Exclude) != 0 || slices.ContainsFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "GEMINI_API_KEY=") }) {
		t.Errorf("without a gate: %+v, %q", s, p.Env)
	}
}

// An interactive job has its session loaded, never made, and its servers get the variables whose
// values the program would keep from them.
func TestGeminiInteractivePlan(t *testing.T) {
	l := adaptertest.Launch("gemini")
	l.Job.Agent.Interactive, l.Job.Agent.Model, l.Job.Secrets = true, "gemini-new", []string{"TOKEN"}
	l.Job.Agent.MCPServers = map[string]jobs.MCPServer{"tiny": {Command: "tiny"}}
	p := adaptertest.Plan(t, Adapter{}, l)
	if !p.KeepStdin || !slices.Contains(p.Args, "--acp") || adaptertest.FlagValue(p.Args, "--approval-mode") != "yolo" || adaptertest.FlagValue(p.Args, "--model") != "gemini-new" {
		t.Errorf("plan %q, stdin is kept: %v", p.Args, p.KeepStdin)
	}
	for _, want := range []string{"PENSTOCK_GEMINI_SESSION=" + l.Session, "PENSTOCK_GEMINI_REPLAY_END=" + replayEnd(l), "PENSTOCK_GEMINI_VARIABLES=TOKEN", "GEMINI_CLI_TRUST_WORKSPACE=false"} {
		if !slices.Contains(p.Env, want) {
			t.Errorf("%s is not in %q", want, p.Env)
		}
	}
	i := slices.IndexFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, settingsVariable+"=") })
	if i < 0 || strings.Contains(p.Env[i], "mcpServers") {
		t.Errorf("the servers are in the settings, too, and start twice: %q", p.Env)
	}
	if i < 0 || !strings.Contains(p.Env[i], `"plan":{"enabled":true}`) || !strings.Contains(p.Env[i], `"enter_plan_mode"`) {
		t.Errorf("it has no plan mode, or begins it by itself: %q", p.Env)
	}
	for resume, want := range map[string]string{"": l.Session, "s-1": "s-1"} {
		l.Resume = resume
		read := adaptertest.Feed(Adapter{}.Decoder(l), `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`)
		var sent struct {
			Method string
			Params struct {
				ID      string `json:"sessionId"`
				Servers []struct {
					Env []struct{ Name, Value string }
				} `json:"mcpServers"`
			}
		}
		if err := json.Unmarshal(read.Reply[0], &sent); err != nil || sent.Method != "session/load" || sent.Params.ID != want || len(sent.Params.Servers) != 1 ||
			len(sent.Params.Servers[0].Env) != 1 || sent.Params.Servers[0].Env[0].Value != "$GEMINI_CLI_PENSTOCK_TOKEN" {
			t.Errorf("resuming %q: %v, it is sent %s", resume, err, read.Reply[0])
		}
	}
}

func TestGeminiVerdicts(t *testing.T) {
	const begun = `{"type":"init","session_id":"s","model":"m"}` + "\n"
	failed := func(kind, message string) string {
		return begun + string(decode.JSON(map[string]any{"type": "result", "status": "error", "error": map[string]string{"type": kind, "message": message}}))
	}
	api := func(body string) string { return failed("unknown", "[API Error: "+body+"]") }
	for _, tt := range []struct {
		name, lines string
		code        int
		reason      jobs.Reason
	}{
		{"a good turn", begun + `{"type":"result","status":"success"}`, 0, ""},
		{"a good turn, then killed", begun + `{"type":"result","status":"success"}`, 137, ""},
		{"a key that nobody knows", api(`{"error":{"code":400,"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}`), 144, jobs.Unauthorized},
		{"a key that may not", api(`{"error":{"code":403,"message":"no"}}`), 147, jobs.Unauthorized},
		{"a bad request", api(`{"error":{"code":400,"message":"no"}}`), 144, jobs.AgentFailed},
		{"a status that is the exit's", api("too many"), 173, jobs.RateLimited},
		{"an exit that is no status", api("terminated"), 137, jobs.ModelUnavailable},
		{"no status at all", api("terminated"), 1, jobs.ModelUnavailable},
		{"another failure", failed("FatalToolExecutionError", "no"), 54, jobs.AgentFailed},
		{"no key", "", 41, jobs.Unauthorized},
		{"no word", "", 0, jobs.AgentProtocol},
		{"no end", begun, 0, jobs.AgentCrashed},
		{"not found", "", 127, jobs.AgentMissing},
	} {
		d := Adapter{}.Decoder(adaptertest.Launch("gemini"))
		adaptertest.Feed(d, strings.Split(tt.lines, "\n")...)
		if _, end := d.Exit(tt.code, ""); end.Reason != tt.reason || (end.Outcome == jobs.Success) != (tt.reason == "") {
			t.Errorf("%s: %+v", tt.name, end)
		}
	}
}
