package claude

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

const (
	initLine   = `{"type":"system","subtype":"init","session_id":"s1","model":"m","tools":["AskUserQuestion"]}`
	goodResult = `{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","result":"done"}`
	askedLine  = `{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion",` +
		`"tool_use_id":"t1","input":{"questions":[{"question":"Which?","header":"H","options":[{"label":"A"},{"label":"B"}]}]}}}`
)

func TestClaudeVerdicts(t *testing.T) {
	retry := func(class string, status string) string {
		return `{"type":"system","subtype":"api_retry","attempt":1,"error_status":` + status + `,"error":"` + class + `"}`
	}
	failed := func(class string, status string) string {
		return `{"type":"assistant","message":{"content":[]},"error":"` + class + `"}` + "\n" +
			`{"type":"result","subtype":"success","is_error":true,"api_error_status":` + status + `,"result":"no"}`
	}
	tests := []struct {
		name   string
		lines  string
		code   int
		signal string
		class  string
		reason jobs.Reason
	}{
		{"good, then killed", initLine + "\n" + goodResult, 143, "", "ok", ""},
		{"good, then killed hard", initLine + "\n" + goodResult, -1, "SIGKILL", "ok", ""},
		{"a turn after a good one", initLine + "\n" + goodResult + "\n" + initLine, 0, "", "died", jobs.AgentCrashed},
		{"ended in the second hopeless retry", initLine + "\n" + retry("authentication_failed", "401"), 143, "", "died", jobs.Unauthorized},
		{"ended in a retry", initLine + "\n" + retry("rate_limit", "429"), 143, "", "died", jobs.RateLimited},
		{"died after a retry that helped", initLine + "\n" + retry("overloaded", "529") + "\n" + `{"type":"assistant","message":{"content":"x"}}`, 1, "", "died", jobs.AgentCrashed},
		{"older versions: no cause", initLine + "\n" + failed("unknown", "402"), 1, "", "error", jobs.Billing},
		{"older versions: status alone", initLine + "\n" + `{"type":"result","is_error":true,"api_error_status":503}`, 1, "", "error", jobs.ModelUnavailable},
		{"an error of a turn before", initLine + "\n" + failed("billing_error", "400") + "\n" + initLine + "\n" + goodResult, 0, "", "ok", ""},
		{"an error of a turn before, and another", initLine + "\n" + failed("billing_error", "400") + "\n" + initLine + "\n" + `{"type":"result","is_error":true,"api_error_status":503}`, 1, "", "error", jobs.ModelUnavailable},
		{"not found", "", 127, "", "no_turn", jobs.AgentMissing},
		{"nothing said", "", 0, "", "no_turn", jobs.AgentProtocol},
		{"killed before it began", "", -1, "SIGKILL", "died", jobs.AgentCrashed},
	}
	for _, tt := range tests {
		d := Adapter{}.Decoder(adaptertest.Launch("claude"))
		adaptertest.Feed(d, strings.Split(tt.lines, "\n")...)
		e, end := d.Exit(tt.code, tt.signal)
		var data event.RunExited
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Class != tt.class || data.Code != tt.code {
			t.Errorf("%s: %s, err %v, want class %s", tt.name, e.Data, err, tt.class)
		}
		want := jobs.Success
		if tt.reason != "" {
			want = jobs.Reasons[tt.reason].Outcome
		}
		if end.Reason != tt.reason || end.Outcome != want || tt.reason != "" && end.Message == "" {
			t.Errorf("%s: %+v, want %s", tt.name, end, tt.reason)
		}
	}
}

func TestClaudeHopeless(t *testing.T) {
	for class, want := range map[string]jobs.Reason{
		"authentication_failed": jobs.Unauthorized, "billing_error": jobs.Billing, "model_not_found": jobs.ModelNotFound,
		"rate_limit": "", "overloaded": "", "unknown": "",
	} {
		d := Adapter{}.Decoder(adaptertest.Launch("claude"))
		r := adaptertest.Feed(d, initLine, `{"type":"system","subtype":"api_retry","attempt":2,"max_retries":6,"retry_delay_ms":571.5,"error":"`+class+`"}`)
		var data event.Retry
		if err := json.Unmarshal(r.Events[0].Data, &data); err != nil || data.Hopeless != (want != "") || data.Attempt != 2 || data.Max != 6 {
			t.Errorf("%s: %s, err %v", class, r.Events[0].Data, err)
		}
		if r.Hopeless != want {
			t.Errorf("%s: hopeless %q, want %q", class, r.Hopeless, want)
		}
	}
}

// Idle is what closes the agent's stdin: too early ends a turn that goes on,
// too late and the run never ends.
func TestClaudeState(t *testing.T) {
	const (
		running = `{"type":"system","subtype":"session_state_changed","state":"running"}`
		idle    = `{"type":"system","subtype":"session_state_changed","state":"idle"}`
		busy    = `{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"b"}]}`
		none    = `{"type":"system","subtype":"background_tasks_changed","tasks":[]}`
	)
	tests := []struct {
		name  string
		lines []string
		want  agent.State
	}{
		{"idle before anything", []string{idle}, agent.Working},
		{"in a turn", []string{running, initLine}, agent.Working},
		{"result, state not told yet", []string{running, initLine, goodResult}, agent.Working},
		{"result and idle", []string{running, initLine, goodResult, idle}, agent.Idle},
		{"no states told", []string{initLine, goodResult}, agent.Idle},
		{"background", []string{running, initLine, busy, goodResult, idle}, agent.Background},
		{"background ended", []string{running, initLine, busy, goodResult, idle, none}, agent.Idle},
		{"the turn that background work begins", []string{running, initLine, busy, goodResult, idle, none, running, initLine}, agent.Working},
	}
	for _, tt := range tests {
		d := Adapter{}.Decoder(adaptertest.Launch("claude"))
		if got := adaptertest.Feed(d, tt.lines...).State; got != tt.want {
			t.Errorf("%s: state %d, want %d", tt.name, got, tt.want)
		}
	}
	for _, before := range [][]string{{running, initLine, goodResult, idle}, {initLine, goodResult}} {
		d := Adapter{}.Decoder(adaptertest.Launch("claude"))
		adaptertest.Feed(d, before...)
		if lines := d.(agent.Speaker).Say("id-1", "more"); len(lines) != 1 || !strings.Contains(string(lines[0]), `"content":"more"`) {
			t.Errorf("said %s", lines)
		}
		if got := adaptertest.Feed(d, `{"type":"x"}`).State; got != agent.Working {
			t.Errorf("state %d after more was said, want working", got)
		}
		if got := adaptertest.Feed(d, before...).State; got != agent.Working {
			t.Errorf("state %d after another turn, want working: it has not taken up what was said", got)
		}
		if got := adaptertest.Feed(d, append([]string{`{"type":"user","uuid":"id-1","isReplay":true}`}, before...)...).State; got != agent.Idle {
			t.Errorf("state %d after that was done, want idle", got)
		}
	}
	// What an interrupt makes it drop is not waited for.
	d := Adapter{}.Decoder(adaptertest.Launch("claude"))
	adaptertest.Feed(d, running, initLine)
	d.(agent.Speaker).Say("id-1", "more")
	queued := `{"type":"command_lifecycle","command_uuid":"id-1","state":"queued"}`
	if got := adaptertest.Feed(d, queued, goodResult, idle).State; got != agent.Idle {
		t.Errorf("state %d after it has dropped what was said, want idle", got)
	}
}

// In an unattended job the decoder answers.
func TestClaudeQuestions(t *testing.T) {
	d := Adapter{}.Decoder(adaptertest.Launch("claude"))
	r := adaptertest.Feed(d, initLine, askedLine)
	if len(r.Reply) != 1 || !strings.Contains(string(r.Reply[0]), `"behavior":"deny"`) || !strings.Contains(string(r.Reply[0]), `"request_id":"r1"`) {
		t.Errorf("reply %s", r.Reply)
	}
	if r.Events[0].Kind != jobs.AskOpened || r.Events[1].Kind != jobs.AskClosed {
		t.Errorf("events %+v", r.Events)
	}
	r = adaptertest.Feed(d, `{"type":"control_request","request_id":"r2","request":{"subtype":"something_new"}}`)
	if len(r.Reply) != 1 || !strings.Contains(string(r.Reply[0]), `"subtype":"error"`) {
		t.Errorf("reply %s", r.Reply)
	}
}

func TestClaudeAnswers(t *testing.T) {
	l := adaptertest.Launch("claude")
	l.Job.Agent.Interactive = true
	d := Adapter{}.Decoder(l)
	if r := adaptertest.Feed(d, initLine, askedLine); len(r.Reply) != 0 || len(r.Events) != 1 {
		t.Fatalf("the question was closed: %+v", r)
	}
	s := d.(agent.Speaker)
	refused := func(a control.Message, code control.Refusal) {
		t.Helper()
		events, lines, err := s.Answer(a)
		if r, ok := errors.AsType[*control.RefusedError](err); !ok || r.Code != code || events != nil || lines != nil {
			t.Errorf("%+v: %v %s, %v, want that it is refused: %s", a, events, lines, err, code)
		}
	}
	refused(control.Message{Ask: "other", Options: []string{"B"}}, control.Nothing)
	refused(control.Message{Options: []string{"Z"}}, control.Unfit)
	refused(control.Message{Options: []string{"A", "B"}}, control.Unfit)
	refused(control.Message{}, control.Unfit)
	refused(control.Message{Answers: map[string]control.Words{"2": {"B"}}}, control.Unfit)
	for _, a := range []control.Message{
		{Ask: "r1", Options: []string{"B"}}, {Options: []string{"b"}}, {Options: []string{"2"}}, {Text: "B"},
		{Answers: map[string]control.Words{"Which?": {"B"}}}, {Answers: map[string]control.Words{"1": {"B"}}},
	} {
		events, lines, err := s.Answer(a)
		if err != nil || len(lines) != 1 || !strings.Contains(string(lines[0]), `"behavior":"allow","updatedInput":{"answers":{"Which?":"B"},"questions":[`) {
			t.Errorf("%+v: %s, %v", a, lines, err)
		}
		if len(events) != 1 || events[0].Kind != jobs.AskClosed || !strings.Contains(string(events[0].Data), "answered") {
			t.Errorf("%+v: events %+v", a, events)
		}
		refused(a, control.Nothing)
		adaptertest.Feed(d, askedLine)
	}
	if _, lines, err := s.Answer(control.Message{Deny: true}); err != nil || !strings.Contains(string(lines[0]), `"behavior":"deny"`) {
		t.Errorf("declined: %s, %v", lines, err)
	}
	adaptertest.Feed(d, askedLine)
	if r := adaptertest.Feed(d, `{"type":"control_cancel_request","request_id":"r1"}`); r.Events[0].Kind != jobs.AskClosed {
		t.Errorf("withdrawn: %+v", r.Events)
	}
	refused(control.Message{Ask: "r1", Options: []string{"B"}}, control.Nothing)
	if lines := s.Interrupt(); !strings.Contains(string(lines[0]), `"subtype":"interrupt"`) {
		t.Errorf("interrupt %s", lines)
	}
}

// All that the program suggests is one answer, for the session alone, and what is
// no list of objects offers nothing.
func TestClaudePermission(t *testing.T) {
	l := adaptertest.Launch("claude")
	l.Job.Agent.Interactive = true
	asked := func(suggestions string) string {
		return `{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"},"permission_suggestions":` + suggestions + `}}`
	}
	rules := `[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls *"},{"toolName":"Read"}],"behavior":"allow","destination":"localSettings"},{"type":"unheardOf","more":[1]}]`
	for _, tt := range []struct {
		suggestions, options string
		answer               control.Message
		want                 string // in the reply; empty: it is refused
	}{
		{rules, `{"label":"Always allow","description":"Bash(ls *), Read, unheardOf","kind":"allow_always"}`, control.Message{Options: []string{"2"}},
			`"updatedPermissions":[{"behavior":"allow","destination":"session","rules":[{"toolName":"Bash","ruleContent":"ls *"},{"toolName":"Read"}],"type":"addRules"},{"destination":"session","more":[1],"type":"unheardOf"}]`},
		{rules, "", control.Message{}, `{"behavior":"allow","updatedInput":{"command":"ls"}}`},
		{rules, "", control.Message{Options: []string{"allow"}}, `{"behavior":"allow","updatedInput":{"command":"ls"}}`},
		{rules, "", control.Message{ToolInput: []byte(`{"command":"ls -l"}`)}, `{"behavior":"allow","updatedInput":{"command":"ls -l"}}`},
		{`[]`, "", control.Message{ToolInput: []byte(`{"command":"ls -l"}`)}, `{"behavior":"allow","updatedInput":{"command":"ls -l"}}`},
		{rules, "", control.Message{Options: []string{"3"}}, `"behavior":"deny"`},
		{rules, "", control.Message{Deny: true}, `"behavior":"deny"`},
		{rules, "", control.Message{Text: "why not"}, ""},
		{rules, "", control.Message{Options: []string{"4"}}, ""},
		{`[]`, "", control.Message{Options: []string{"1"}}, ""},
		{`[null]`, "", control.Message{}, `"behavior":"allow"`},
		{`"x"`, "", control.Message{}, `"behavior":"allow"`},
	} {
		d := Adapter{}.Decoder(l)
		if r := adaptertest.Feed(d, initLine, asked(tt.suggestions)); !strings.Contains(string(r.Events[0].Data), tt.options) {
			t.Errorf("%s: it asks %s", tt.suggestions, r.Events[0].Data)
		}
		_, lines, err := d.(agent.Speaker).Answer(tt.answer)
		if (err != nil) != (tt.want == "") || err == nil && !strings.Contains(string(lines[0]), tt.want) {
			t.Errorf("%s: %+v is answered with %s, %v", tt.suggestions, tt.answer, lines, err)
		}
	}
}

// Totals of a process that resumed a session begin with those of the session
// in some versions, and must not be counted again.
func TestClaudeTotal(t *testing.T) {
	usage := func(n, cost string) string {
		return `{"m":{"inputTokens":` + n + `,"outputTokens":1,"cacheReadInputTokens":2,"cacheCreationInputTokens":3,"costUSD":` + cost + `}}`
	}
	result := func(all, since string) string {
		line := `{"type":"result","is_error":false,"total_cost_usd":9,"usage":{"input_tokens":7},"modelUsage":` + all
		if since != "" {
			line += `,"model_usage_since_last_result":` + since
		}
		return line + `}`
	}
	tests := []struct {
		name  string
		lines []string
		input int64
		cost  float64
	}{
		{"what was used since", []string{result(usage("500", "5"), usage("100", "1")), result(usage("700", "7"), usage("200", "2"))}, 300, 3},
		{"all of the process", []string{result(usage("100", "1"), ""), result(usage("300", "3"), "")}, 300, 9},
		{"nothing used after a resume", []string{result(usage("500", "5"), "{}")}, 0, 0},
		{"a result without totals", []string{result(usage("500", "5"), usage("100", "1")), result("{}", "")}, 100, 1},
		{"the turns only", []string{result("{}", ""), result("{}", "")}, 14, 0},
	}
	for _, tt := range tests {
		d := Adapter{}.Decoder(adaptertest.Launch("claude"))
		adaptertest.Feed(d, append([]string{initLine}, tt.lines...)...)
		if got := d.Total(); got.Usage.Input != tt.input || got.CostUSD != tt.cost || got.Session != "s1" || got.Model != "m" {
			t.Errorf("%s: %+v, want %d and %v", tt.name, got, tt.input, tt.cost)
		}
	}
}

// A line may end several calls; the structured result belongs to the first.
func TestClaudeResults(t *testing.T) {
	d := Adapter{}.Decoder(adaptertest.Launch("claude"))
	line := func(failed, result string) string {
		return `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","is_error":` + failed + `,"content":"x"},` +
			`{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"y"},{"type":"image"}]}]},"tool_use_result":` + result + `}`
	}
	file := `{"type":"create","filePath":"/workspace/a","structuredPatch":[]}`
	kinds := func(r agent.Read) (out string) {
		for _, e := range r.Events {
			out += string(e.Kind) + " "
		}
		return out
	}
	r := adaptertest.Feed(d, line("false", file))
	if got, want := kinds(r), "tool.ended file.changed tool.ended "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := string(r.Events[2].Data); got != `{"call":"b","ok":true,"output":"y\n[image]"}` {
		t.Errorf("second call: %s", got)
	}
	if got := kinds(adaptertest.Feed(d, line("true", file))); got != "tool.ended tool.ended " {
		t.Errorf("a call that failed changed a file: %s", got)
	}
	r = adaptertest.Feed(d, line("false", `"`+strings.Repeat("x", maxResult)+`"`))
	if n := len(r.Events[0].Data); n > 1000 {
		t.Errorf("a long result is repeated: %d bytes", n)
	}
}
