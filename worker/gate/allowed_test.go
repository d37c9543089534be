package gate

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// What the policy or the job does not allow is not sent to the provider, however a request
// asks for it, and what they allow is.
func TestWhatCallsMayAskFor(t *testing.T) {
	t.Parallel()
	few := Allowed{Tiers: []string{"standard_only", "flex"}, Geos: []string{"global", "e*"}, Betas: []string{"thinking-*"}, Files: []string{"file-1", "https://files/*"}, Containers: []string{"box-1"}}
	none := Allowed{Tiers: []string{"none"}, Geos: []string{"none"}, Betas: []string{"none"}, Files: []string{"none"}, Containers: []string{"none"}}
	const google, responses, completions = "/v1beta/models/m:generateContent", "/v1/responses", "/v1/chat/completions"
	for _, c := range []struct {
		path, ask string // members of the body, or "NAME: value" headers
		field     string // that is refused with few; empty: it passes
		harmless  bool   // passes with none, too
	}{
		{path: "/v1/messages", ask: `"max_tokens":1`, harmless: true},
		{path: "/v1/messages", ask: `"service_tier":"standard_only"`},
		{path: "/v1/messages", ask: `"service_tier":null,"container":null`, harmless: true},
		{path: "/v1/messages", ask: `"service_tier":"auto"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"service\u005ftier":"auto"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"Service_Tier":"auto"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"ſervice_tier":"auto"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"service_tier":"flex","serviceTier":"auto"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"service_tier":"flex,standard_only"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"service_tier":5`, field: "service_tier"},
		{path: "/v1/messages", ask: `"service_tier":["flex","auto"]`, field: "service_tier"},
		{path: "/v1/messages", ask: `"service_tier":{"flex":"flex"}`, field: "service_tier"},
		{path: "/v1/messages", ask: `"speed":"fast"`, field: "service_tier"},
		{path: "/v1/messages", ask: `"inference_geo":"global"`},
		{path: "/v1/messages", ask: `"inference_geo":"eu"`},
		{path: "/v1/messages", ask: `"inference_geo":null`, harmless: true},
		{path: "/v1/messages", ask: `"inference_geo":"us"`, field: "inference_geo"},
		{path: "/v1/messages", ask: `"Inference\u005fGeo":"us"`, field: "inference_geo"},
		{path: "/v1/messages", ask: `"inference_geo":["global","us"]`, field: "inference_geo"},
		{path: "/v1/messages", ask: `"inference_geo":{"us":1}`, field: "inference_geo"},
		{path: "/v1/messages/count_tokens", ask: `"inference_geo":"us"`, field: "inference_geo"},
		{path: "/v1/messages", ask: `"metadata":{"inference_geo":"us"}`, harmless: true},
		{path: "/v1/messages", ask: `"tools":[{"name":"t","input_schema":{"properties":{"service_tier":{},"file_id":{},"container":{}}}}]`, harmless: true},
		{path: "/v1/messages", ask: `"messages":[{"role":"user","content":[{"type":"text","text":"\"service_tier\":\"auto\""}]}]`, harmless: true},
		{path: "/v1/messages", ask: `"metadata":{"service_tier":"auto","file_id":"f"}`, harmless: true},
		{path: "/v1/messages", ask: `"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"file-1"}}]}]`},
		{path: "/v1/messages", ask: `"messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"file-2"}}]}]`, field: "file_id"},
		{path: "/v1/messages", ask: `"messages":[{"content":[{"type":"container_upload","file_id":"file-2"}]}]`, field: "file_id"},
		{path: "/v1/messages", ask: `"messages":[{"content":[{"type":"as yet unknown","source":{"file_id":"file-1"},"more":[[{"File_ID":"file-2"}]]}]}]`, field: "file_id"},
		{path: "/v1/messages", ask: `"messages":[` + strings.Repeat(`{"file_id":"file-1"},`, 2*1000) + `{"file_id":"file-2"}]`, field: "file_id"},
		{path: "/v1/messages", ask: `"container":"box-1"`},
		{path: "/v1/messages", ask: `"container":{"id":"box-1","skills":[]}`},
		{path: "/v1/messages", ask: `"container":"box-2"`, field: "container_id"},
		{path: "/v1/messages", ask: `"container":{"ID":"box-2"}`, field: "container_id"},
		{path: "/v1/messages", ask: `"container":{"skills":[{"id":"box-1"}]}`, field: "container_id"},
		{path: "/v1/messages", ask: `"container":[{"id":"box-1"},{}]`, field: "container_id"},
		{path: "/v1/messages", ask: `"anthropic_beta":["thinking-1"]`},
		{path: "/v1/messages", ask: `"anthropic_beta":["thinking-1","context-1m"]`, field: "beta"},
		{path: "/v1/messages", ask: `"extra_headers":{"anthropic-beta":"context-1m"}`, field: "hidden"},
		{path: "/v1/messages", ask: `"extra_body":{"speed":"fast"}`, field: "hidden"},
		{path: "/v1/messages", ask: `Anthropic-Beta: thinking-1, thinking-2`},
		{path: "/v1/messages", ask: `Anthropic-Beta: thinking-1,context-1m`, field: "beta"},
		{path: "/v1/messages", ask: "Anthropic-Beta: thinking-1\nanthropic-beta: context-1m", field: "beta"},
		{path: "/v1/messages", ask: `ANTHROPIC-BETA: thinking-1;context-1m`, field: "beta"},
		{path: "/v1/messages", ask: `Anthropic-Beta: thinking-1 context-1m`, field: "beta"},
		{path: "/v1/messages/count_tokens", ask: `"messages":[{"file_id":"file-2"}]`, field: "file_id"},
		{path: "/v1/models", ask: `Anthropic-Beta: context-1m`, field: "beta"},
		{path: responses, ask: `"service_tier":"flex"`},
		{path: responses, ask: `"service_tier":"priority"`, field: "service_tier"},
		{path: responses, ask: `"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"},{"type":"input_image","file_id":"file-2"}]}]`, field: "file_id"},
		{path: responses, ask: `"input":[{"type":"code_interpreter_call","container_id":"box-2"}]`, field: "container_id"},
		{path: responses, ask: `"tools":[{"type":"custom","container":{"type":"auto","file_ids":["file-1"]}}]`, field: "container_id"},
		{path: responses, ask: `"tools":[{"type":"function","parameters":{"properties":{"file_id":{"type":"string"}}}}]`, harmless: true},
		{path: responses, ask: `OpenAI-Beta: responses=experimental`, field: "beta"},
		{path: completions, ask: `"service_tier":"scale"`, field: "service_tier"},
		{path: completions, ask: `"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-2"}}]}]`, field: "file_id"},
		{path: google, ask: `"serviceTier":"flex"`},
		{path: google, ask: `"service_tier":"priority"`, field: "service_tier"},
		{path: google, ask: `"generationConfig":{"serviceTier":"priority"}`, field: "service_tier"},
		{path: google, ask: `"contents":[{"parts":[{"file_data":{"file_uri":"https://files/1"}}]}]`},
		{path: google, ask: `"contents":[{"parts":[{"fileData":{"fileUri":"https://other/1"}}]}]`, field: "file_id"},
		{path: google, ask: `"contents":[{"parts":[{"functionCall":{"args":{"file_id":"x","container":"y"}}}]}]`, harmless: true},
	} {
		name := strings.TrimSpace(c.path + " " + c.ask[:min(len(c.ask), 90)])
		api := map[string]string{google: "google", responses: "openai", completions: "openai"}[c.path]
		for owner, limits := range map[string]Limits{
			"":                     {},
			"of the policy":        {Policy: few},
			"that the job allows":  {Job: few, Policy: Allowed{Models: []string{"m*"}}},
			"that the job allows.": {Job: none},
		} {
			limits.Remote = true // files by URL are then a matter of these lists alone
			passes := owner == "" || c.field == ""
			if strings.HasSuffix(owner, ".") {
				passes = c.harmless
			}
			r := newRig(t, Config{API: api}, limits, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
			status, answer := r.asks(c.path, c.ask)
			if (status == 200) != passes || (r.sent() == 1) != passes {
				t.Errorf("%s: with %+v: %d %s", name, limits, status, answer)
			}
			switch {
			case passes:
			case status != 400 || c.field != "hidden" && !strings.Contains(answer, strings.TrimSuffix(owner, ".")):
				t.Errorf("%s: refused by %q with %d %s", name, owner, status, answer)
			case len(r.violations) != 1 || c.field != "" && !strings.HasSuffix(owner, ".") && r.violations[0].Field != strings.TrimPrefix(c.field, "hidden"):
				t.Errorf("%s: told %+v, want %s", name, r.violations, c.field)
			}
			r.stop()
		}
	}
}

// asks makes a request with members of a body, or with headers.
func (r *rig) asks(path, ask string) (status int, answer string) {
	r.t.Helper()
	method, body, header := "POST", `{"model":"m"}`, http.Header{}
	switch {
	case !strings.HasPrefix(ask, `"`):
		for line := range strings.SplitSeq(ask, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			header.Add(name, value)
		}
	case strings.Contains(path, ":"): // it has the model
		body = "{" + ask + "}"
	default:
		body = `{"model":"m",` + ask + "}"
	}
	if path == "/v1/models" {
		method, body = "GET", ""
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(got)
}

// A model that readers of JSON may see differently is refused, whatever is allowed.
func TestAModelThatIsNamedTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, Limits{}, stream(start, text, delta, stop))
	for _, body := range []string{
		`{"model":"m","Model":"n"}`, `{"model":["m","n"]}`, `{"model":{"id":"m"}}`, `{"model":5}`, `{"MODEL":"m"}`, `{"model":"m","model":"n"}`,
	} {
		if status, answer, _ := r.do("POST", "/v1/messages", body); status != 400 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if r.sent() != 0 {
		t.Errorf("%d requests were sent", r.sent())
	}
}
