package gate

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

const (
	geminiStream = "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
	geminiWhole  = "/v1beta/models/gemini-x:generateContent"

	geminiFirst = `{"candidates":[{"content":{"parts":[{"text":"h"}]}}],"modelVersion":"gemini-x-1",` +
		`"usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":5}}`
	geminiLast = `{"candidates":[{"finishReason":"STOP"}],"modelVersion":"gemini-x-1",` +
		`"usageMetadata":{"promptTokenCount":100,"toolUsePromptTokenCount":10,"cachedContentTokenCount":60,"candidatesTokenCount":40,"thoughtsTokenCount":7}}`
)

func TestGoogle(t *testing.T) {
	r := newRig(t, Config{API: "google"}, Limits{Tokens: 500}, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !strings.Contains(req.URL.Path, ":stream"):
			_, _ = io.WriteString(w, geminiLast)
		case strings.Contains(req.URL.Path, "cut:"):
			stream("data: "+geminiFirst+"\r\n\r\n")(w, req)
			panic(http.ErrAbortHandler)
		default:
			stream("data: "+geminiFirst+"\r\n\r\n", "data: "+geminiLast+"\r\n\r\n")(w, req)
		}
	})
	const body = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	used := jobs.Usage{}
	for _, tt := range []struct {
		path string
		used jobs.Usage
	}{
		{geminiStream, jobs.Usage{Input: 50, Output: 47, CacheRead: 60}},
		{geminiWhole, jobs.Usage{Input: 50, Output: 47, CacheRead: 60}},
		{"/v1beta/models/cut:streamGenerateContent?alt=sse", jobs.Usage{Input: 40, Output: 5, CacheRead: 60}},
	} {
		// The agent's own key stays here, wherever it stands.
		path := tt.path + map[bool]string{true: "&key=" + token, false: "?key=" + token}[strings.Contains(tt.path, "?")]
		if status, got, _ := r.do("POST", path, body, "X-Goog-Api-Key", token, "Authorization", "Bearer dummy"); status != 200 {
			t.Fatalf("%s: %d %s", path, status, got)
		}
		used = used.Add(tt.used)
		if m := r.session.Meter(); m.Usage != used || m.Model != "gemini-x-1" {
			t.Errorf("%s: meter %+v, want %+v", path, m, used)
		}
	}
	for _, req := range r.seen {
		if req.Header.Get("X-Goog-Api-Key") != key || req.Header.Get("Authorization") != "" || strings.Contains(req.URL.RawQuery, "key") {
			t.Errorf("%s: headers %v", req.URL, req.Header)
		}
		if strings.Contains(req.URL.Path, ":stream") != (req.URL.RawQuery == "alt=sse") {
			t.Errorf("went out as %s", req.URL)
		}
	}
	// 419 are used; the next answer spends the budget, and the one after it is
	// refused in the provider's words.
	r.do("POST", geminiWhole, body)
	status, got, _ := r.do("POST", geminiWhole, body)
	if status != 400 || !strings.HasPrefix(got, `{"error":{"code":400,"message":"penstock: the budget`) || !strings.Contains(got, `"status":"INVALID_ARGUMENT"`) {
		t.Errorf("got %d %s", status, got)
	}
}

func TestGoogleRefuses(t *testing.T) {
	const contents = `"contents":[{"role":"user","parts":[{"text":"hi"}]}]`
	with := func(field string) string { return `{` + contents + `,` + field + `}` }
	for _, remote := range []bool{false, true} {
		r := newRig(t, Config{API: "google"}, Limits{Remote: remote}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, geminiLast) })
		for _, tt := range []struct {
			name, path, body string
			status, remote   int
		}{
			{"own tools", geminiWhole, with(`"tools":[{"functionDeclarations":[{"name":"a","parameters":{"tools":[{"googleSearch":1}],"fileUri":"x"}}]},{"function_declarations":[]}]`), 200, 200},
			{"data of a tool", geminiWhole, `{"contents":[{"parts":[{"functionCall":{"args":{"fileUri":"x"}}},{"functionResponse":{"response":{"file_uri":"x"}}}]}]}`, 200, 200},
			{"its model again", geminiWhole, with(`"model":"models/gemini-x"`), 200, 200},
			{"a count", "/v1beta/models/gemini-x:countTokens", `{"generateContentRequest":{"model":"models/gemini-x",` + contents + `}}`, 200, 200},
			{"search there", geminiWhole, with(`"tools":[{"functionDeclarations":[]},{"googleSearch":{}}]`), 400, 200},
			{"fetch there", geminiWhole, with(`"tools":[{"functionDeclarations":[],"urlContext":{}}]`), 400, 200},
			{"fetch there, not in a list", geminiWhole, with(`"tools":{"url_context":{}}`), 400, 200},
			{"code there", geminiWhole, with(`"tools":[{"code\u005fexecution":{}}]`), 400, 200},
			{"a file by URL", geminiWhole, `{"contents":[{"parts":[{"fileData":{"fileUri":"https://evil.example/?secret"}}]}]}`, 400, 200},
			{"a file by URL, spelled otherwise", geminiWhole, `{"contents":[{"parts":[{"file_data":{"file_uri":"https://evil.example"}}]}]}`, 400, 200},
			{"what is stored there", geminiWhole, with(`"cachedContent":"cachedContents/a"`), 400, 200},
			{"what is stored there, spelled otherwise", geminiWhole, with(`"cached_content":"cachedContents/a"`), 400, 200},
			{"another model", geminiWhole, with(`"model":"models/gemini-y"`), 400, 400},
			{"twice", geminiWhole, with(`"tools":[],"tools":[{"googleSearch":{}}]`), 400, 400},
			{"no object", geminiWhole, `[]`, 400, 400},
			{"one list instead of a stream", "/v1beta/models/gemini-x:streamGenerateContent", with(`"a":1`), 403, 403},
			{"another form", "/v1beta/models/gemini-x:streamGenerateContent?alt=json", with(`"a":1`), 403, 403},
			{"the form twice", geminiStream + "&alt=json", with(`"a":1`), 403, 403},
			{"a form nobody asked for", geminiWhole + "?alt=media", with(`"a":1`), 403, 403},
			{"another version", "/v1/models/gemini-x:generateContent", with(`"a":1`), 403, 403},
			{"another kind of model", "/v1beta/tunedModels/a:generateContent", with(`"a":1`), 403, 403},
			{"a model that is a path", "/v1beta/models/a/../b:generateContent", with(`"a":1`), 403, 403},
			{"a path in disguise", "/v1beta/models/a%2f..%2fb:generateContent", with(`"a":1`), 403, 403},
			{"no model", "/v1beta/models/:generateContent", with(`"a":1`), 403, 403},
			{"many at once", "/v1beta/models/gemini-x:batchGenerateContent", with(`"a":1`), 403, 403},
			{"files", "/v1beta/files", `{}`, 403, 403},
			{"an upload", "/upload/v1beta/files", `{}`, 403, 403},
		} {
			want := tt.status
			if remote {
				want = tt.remote
			}
			before := r.sent()
			status, body, _ := r.do("POST", tt.path, tt.body)
			if status != want || (r.sent() > before) != (want == 200) {
				t.Errorf("%s, remote %v: %d %s, %d sent, want %d", tt.name, remote, status, body, r.sent()-before, want)
			}
			if want == 403 && !strings.Contains(body, `"status":"PERMISSION_DENIED"`) {
				t.Errorf("%s: refused as %s", tt.name, body)
			}
		}
		if status, _, _ := r.do("GET", "/v1beta/models?pageSize=5&key="+token, ""); status != 200 {
			t.Errorf("the list of models: %d", status)
		}
	}
}
