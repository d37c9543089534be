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
