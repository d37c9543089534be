package agenttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func ask(t *testing.T, url, messages string) (int, string) {
	t.Helper()
	res, err := http.Post(url+"/v1/messages", "application/json", strings.NewReader(`{"model":"m","stream":true,"messages":[`+messages+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, string(out) + "!" + err.Error()
	}
	return res.StatusCode, string(out)
}

func TestScript(t *testing.T) {
	m := New(Script{On: "fix", Steps: []Step{
		Use("Bash", map[string]any{"command": "ls"}),
		func(r Request) Reply { return Reply{Text: "saw " + r.Last} },
		func(r Request) Reply {
			if r.Try == 0 {
				return Reply{Status: 529, Error: "overloaded_error"}
			}
			return Reply{Text: "half", Drop: true}
		},
	}})
	srv := httptest.NewServer(m)
	defer srv.Close()
	const (
		user  = `{"role":"user","content":[{"type":"text","text":"please fix it"}]}`
		model = `{"role":"assistant","content":"x"}`
		tool  = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a.go"}]}]}`
	)
	for _, tt := range []struct {
		messages string
		status   int
		want     string
	}{
		{user, 200, `"partial_json":"{\"command\":\"ls\"}"`},
		{user, 200, `"stop_reason":"tool_use"`},
		{user + "," + model + "," + tool, 200, `"text":"saw a.go`},
		{user + "," + model + "," + tool + "," + model + "," + tool, 529, `"overloaded_error"`},
		{user + "," + model + "," + tool + "," + model + "," + tool, 200, "!unexpected EOF"},
		{`{"role":"user","content":"hello"}`, 200, `"text":"ok"`},
	} {
		status, body := ask(t, srv.URL, tt.messages)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want %d and %s", tt.messages, status, body, tt.status, tt.want)
		}
	}
	if got := m.Requests(); len(got) != 6 || got[2].Turn != 1 || got[2].First != "please fix it\n" {
		t.Errorf("requests %+v", got)
	}
}

// The Chat Completions API tells the same script, in a stream and without one.
func TestCompletions(t *testing.T) {
	m := New(Script{On: "fix", Steps: []Step{
		Use("shell", map[string]any{"command": "ls"}),
		func(r Request) Reply { return Reply{Text: "saw " + r.Last, Input: 7, Output: 3} },
	}})
	srv := httptest.NewServer(m)
	defer srv.Close()
	const (
		begin = `{"model":"m","tools":[{"type":"function","function":{"name":"shell"}}],"messages":[{"role":"system","content":"be brief"},` +
			`{"role":"user","content":"Here is Linux. "},{"role":"assistant","content":"Got it. Thanks for the context!"},` +
			`{"role":"user","content":[{"type":"text","text":"fix it"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}`
		called = `,{"role":"assistant","tool_calls":[]},{"role":"tool","tool_call_id":"c","content":"a.go"}`
		stream = `],"stream":true,"stream_options":{"include_usage":true}}`
	)
	for _, tt := range []struct {
		body string
		want []string
	}{
		{begin + stream, []string{`"arguments":"{\"command\":\"ls\"}"`, `"finish_reason":"tool_calls"`, "data: [DONE]"}},
		{begin + "]}", []string{`"tool_calls":[{`, `"object":"chat.completion"`}},
		{begin + called + stream, []string{`"content":"saw a.go"`, `"finish_reason":"stop"`, `"usage":{"completion_tokens":3,"prompt_tokens":7,"total_tokens":10}`}},
		{begin + called + `],"stream":true}`, []string{`"content":"saw a.go"`, "data: [DONE]"}},
		{begin + called + "]}", []string{`"content":"saw a.go"`, `"prompt_tokens":7`}},
	} {
		res, err := http.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(res.Body)
		res.Body.Close()
		for _, want := range tt.want {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %s, err %v, want %s", tt.body, out, err, want)
			}
		}
	}
	got := m.Requests()
	if r := got[2]; len(got) != 5 || r.Turn != 1 || r.First != "Here is Linux. fix it\n\n" || !r.Returned || r.System != "be brief" || len(r.Images) != 1 || r.Tools[0] != "shell" {
		t.Errorf("requests %+v", got)
	}
}
