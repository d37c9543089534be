package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func TestWholeAnswer(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(req.URL.Path, "count_tokens") {
			_, _ = io.WriteString(w, `{"input_tokens":12}`)
			return
		}
		_, _ = io.WriteString(w, "{\"type\":\"message\",\n\"model\":\"m\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}\n")
	})
	r.messages()
	if status, body, _ := r.do("POST", "/v1/messages/count_tokens", hello); status != 200 || body != `{"input_tokens":12}` {
		t.Errorf("got %d %s", status, body)
	}
	if m := r.session.Meter(); m.Usage != (jobs.Usage{Input: 7, Output: 3}) || m.Model != "m" || m.Calls != 2 {
		t.Errorf("meter %+v", m)
	}
}

func TestBudget(t *testing.T) {
	r := newRig(t, Config{}, Limits{Tokens: 410, Used: jobs.Usage{Input: 10}}, stream(start, delta, stop))
	for range 2 { // 10 + 200 + 200: the second spends it, and is answered
		if status, _ := r.messages(); status != 200 {
			t.Fatalf("got %d", status)
		}
	}
	select {
	case <-r.session.Spent():
	default:
		t.Error("not spent")
	}
	status, body := r.messages()
	var e struct {
		Type  string
		Error struct{ Type, Message string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || status != 400 || e.Type != "error" || e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, "410 tokens") {
		t.Errorf("got %d %s, err %v", status, body, err)
	}
	if m := r.session.Meter(); m.Calls != 2 || m.Refused != 1 || m.Usage.Total() != 400 {
		t.Errorf("meter %+v", m)
	}
	select {
	case <-NewSession("s", token, Limits{Tokens: 5, Used: jobs.Usage{Output: 5}}).Spent():
	default:
		t.Error("a budget that was spent before is open")
	}
}

// The call that spends the budget ends as it would; all that are under way are cut: an
// answer that has begun is broken off, one that has not is an error.
func TestBudgetCutsOthers(t *testing.T) {
	waiting, cut := make(chan bool, 3), make(chan string, 3)
	r := newRig(t, Config{}, Limits{Tokens: 1000}, func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("X-App") {
		case "spends":
			stream(strings.Replace(start, ":100,", ":5000,", 1), delta, stop)(w, req)
			return
		case "talks":
			stream(start)(w, req)
		case "silent":
			waiting <- true
		}
		<-req.Context().Done()
	})
	for _, app := range []string{"talks", "talks", "silent"} {
		go func() {
			res, err := r.ask("POST", "/v1/messages", hello, "X-App", app)
			if err != nil {
				waiting <- false
				cut <- err.Error()
				return
			}
			defer res.Body.Close()
			if app == "talks" { // what the agent has of the answer, not what the model has sent
				_, err = io.ReadFull(res.Body, make([]byte, len(start)))
				waiting <- err == nil
			}
			rest, err := io.ReadAll(res.Body)
			cut <- fmt.Sprint(app, " ", res.StatusCode, " ", string(rest), " ", err)
		}()
	}
	for range 3 {
		if !<-waiting {
			t.Error("a call failed before the budget was spent")
		}
	}
	status, body, _ := r.do("POST", "/v1/messages", hello, "X-App", "spends")
	if status != 200 || !strings.HasSuffix(body, stop) {
		t.Errorf("the call that spends the budget is cut: %d %q", status, body)
	}
	for range 3 {
		got := <-cut
		if !strings.HasPrefix(got, "talks 200  unexpected EOF") && !strings.HasPrefix(got, "silent 400 ") {
			t.Errorf("not cut: %q", got)
		}
	}
}

func TestOpenAI(t *testing.T) {
	const (
		created = "data: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"model\":\"m-1\",\"usage\":null}}\n\n"
		piece   = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
		usage   = `"object":"response","model":"m-1","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":50}}`
	)
	r := newRig(t, Config{API: "openai"}, Limits{Tokens: 500}, func(w http.ResponseWriter, req *http.Request) {
		switch req.Header.Get("Originator") {
		case "whole":
			_, _ = io.WriteString(w, "{"+usage)
		case "cut":
			stream(created, piece, piece)(w, req)
			panic(http.ErrAbortHandler)
		default:
			stream(created, piece, "data: {\"type\":\"response.completed\",\"response\":{"+usage+"}\n\n")(w, req)
		}
	})
	with := func(field string) string { return `{"model":"m","stream":true,"input":[]` + field + `}` }
	for _, tt := range []struct {
		name, body string
		status     int
	}{
		{"plain", with(`,"tools":[{"type":"function","parameters":{"tools":[{"type":"mcp"}],"a":1,"a":2}},{"type":"tool_search"}]`), 200},
		{"inline picture", with(`,"x":[{"image_url":"data:image/png;base64,AA=="}]`), 200},
		{"search there", with(`,"tools":[{"type":"web_search"}]`), 400},
		{"servers", with(`,"tools":[{"type":"mcp","server_url":"https://evil.example"}]`), 400},
		{"nested tools", with(`,"tools":[{"type":"namespace","tools":[{"type":"code_interpreter"}]}]`), 400},
		{"picture by URL", with(`,"x":[{"image_url":"https://evil.example"}]`), 400},
		{"file by URL", with(`,"x":[{"file_url":"https://evil.example"}]`), 400},
		{"stored prompt", with(`,"prompt":{"id":"p"}`), 400},
		{"background", with(`,"background":true`), 400},
	} {
		if status, body, _ := r.do("POST", "/v1/responses", tt.body, "Authorization", "Bearer "+token); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, body, tt.status)
		}
	}
	if m := r.session.Meter(); m.Usage != (jobs.Usage{Input: 80, Output: 100, CacheRead: 120}) || m.Model != "m-1" || m.Violations != 7 {
		t.Errorf("meter %+v", m)
	}
	for _, req := range r.seen {
		if req.Header.Get("Authorization") != "Bearer "+key || req.Header.Get("X-Api-Key") != "" {
			t.Errorf("headers %v", req.Header)
		}
	}
	r.do("POST", "/v1/responses", with(""), "Originator", "whole")
	r.do("POST", "/v1/responses", with(`,"x":"`+strings.Repeat("x", 400)+`"`), "Originator", "cut")
	// What is not told is estimated: 401 bytes of text that went in, two pieces.
	if m := r.session.Meter(); m.Usage != (jobs.Usage{Input: 120 + 134, Output: 152, CacheRead: 180}) {
		t.Errorf("meter %+v", m)
	}
	if status, body, _ := r.do("POST", "/v1/responses", with("")); status != 400 || !strings.HasPrefix(body, `{"error":{"message":"penstock: the budget`) {
		t.Errorf("got %d %s", status, body)
	}
	for _, path := range []string{"/v1/responses/compact", "/v1/responses?x=1", "/v1/files", "/v1/messages"} {
		if status, _, _ := r.do("POST", path, with("")); status != 403 {
			t.Errorf("%s: %d", path, status)
		}
	}
}
