package gate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestForbidden(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start))
	raw := func(request string) string {
		t.Helper()
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(c, request)
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	refused := 0
	for _, line := range []string{
		"CONNECT evil.example:443", "CONNECT /v1/messages",
		"POST http://evil.example/v1/messages", "GET http://169.254.169.254/latest/meta-data", "POST //evil.example/v1/messages",
		"POST /v1/messages/../files", "POST /v1/../v1/messages", "POST /v1/messages/", "POST /v1//messages", "POST /%761/messages", "POST /v1/messages%2f..",
		"GET /v1/messages", "PUT /v1/messages", "OPTIONS /v1/messages", "POST /v1/messages/batches", "POST /v1/files", "GET /v1/organizations/me",
		"GET /v1/models/..", "GET /v1/models/../files", "GET /v1/models/a/b", "GET /v1/models/%2e%2e", "GET /", "DELETE /v1/models/a",
		"POST /v1/messages?beta=true&x=1", "POST /v1/messages?key=a", "GET /v1/models?limit=1;key=2", "OPTIONS *",
	} {
		got := raw(line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf("%s: %q", line, got)
		}
		refused++
	}
	for _, host := range []string{"api.anthropic.com", "evil.example:3128", "10.0.0.1"} {
		if got := raw("POST /v1/messages HTTP/1.1\r\nHost: " + host + "\r\nX-Api-Key: " + token + "\r\nContent-Length: 0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf("host %s: %q", host, got)
		}
		refused++
	}
	if m := r.session.Meter(); m.Violations != refused || m.Calls != 0 || len(r.violations) != refused {
		t.Errorf("meter %+v, %d violations told, want %d", m, len(r.violations), refused)
	}
	for i, what := range map[int]string{0: "tunnel", 2: "proxy request", 5: "path", refused - 1: "host"} {
		if r.violations[i].What != what {
			t.Errorf("told as %+v, want %s", r.violations[i], what)
		}
	}
	if r.sent() != 0 {
		t.Errorf("%d requests reached the provider: %v", r.sent(), r.seen[0].URL)
	}
}

func TestAllowedBesidesMessages(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[]}`) })
	for _, tt := range []struct {
		method, path string
		sent         int
	}{{"HEAD", "/", 0}, {"HEAD", "/api/hello", 0}, {"GET", "/v1/models?limit=20", 1}, {"GET", "/v1/models/claude-opus-4.1", 2}} {
		if status, _, _ := r.do(tt.method, tt.path, ""); status != 200 || r.sent() != tt.sent {
			t.Errorf("%s %s: %d, %d sent, want %d", tt.method, tt.path, status, r.sent(), tt.sent)
		}
	}
}

func TestSmuggling(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start, delta, stop))
	inner := "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nContent-Length: 0\r\n\r\n"
	for name, request := range map[string]string{
		"length and chunks": "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"two lengths":       "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n" + inner,
		"two encodings":     "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"folded header":     "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nX-A: b\r\n Authorization: c\r\nContent-Length: 0\r\n\r\n",
		"two hosts":         "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n",
		"upgrade":           "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: " + token + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
	} {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(c, request)
		line, _ := bufio.NewReader(c).ReadString('\n')
		c.Close()
		if !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.1 501") {
			t.Errorf("%s: %q", name, line)
		}
	}
	// The client's own framing and hop-by-hop names do not travel.
	r.do("POST", "/v1/messages", hello, "Connection", "X-Api-Key", "Trailer", "X-Api-Key", "X-Http-Method-Override", "DELETE", "Anthropic-Beta", "a, b")
	if n := r.sent(); n != 1 {
		t.Fatalf("%d requests reached the provider", n)
	}
	if h := r.seen[0].Header; h.Get("X-Api-Key") != key || h.Get("X-Http-Method-Override") != "" || h.Get("Connection") != "" {
		t.Errorf("headers %v", h)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"n%d":%d,`, i, i)
	}
	return b.String()
}

func TestBodies(t *testing.T) {
	with := func(field string) string { return `{"model":"m",` + field + `,"messages":[]}` }
	tests := []struct {
		name, body     string
		status, remote int // without and with Limits.Remote
	}{
		{"plain", hello, 200, 200},
		{"own tools", with(`"tools":[{"name":"Bash","input_schema":{"type":"object","mcp_servers":1}},{"type":"custom"},{"type":"bash_20250124"},{"type":"text_editor_20250728"}]`), 200, 200},
		{"data of a tool", with(`"x":[{"type":"tool_use","input":{"source":{"type":"url","url":"x"},"a":1,"a":2}}]`), 200, 200},
		{"inline picture", with(`"x":[{"source":{"type":"base64","data":"AA=="}}]`), 200, 200},
		{"search there", with(`"tools":[{"type":"web_search_20250305","name":"web_search"}]`), 400, 200},
		{"fetch there", with(`"tools":[{"type":"custom"},{"type":"web_fetch_20250910"}]`), 400, 200},
		{"code there", with(`"tools":[{"type":"code_execution_20250825"}]`), 400, 200},
		{"unknown tool", with(`"tools":[{"type":"new_20300101"}]`), 400, 200},
		{"servers", with(`"mcp_servers":[{"type":"url","url":"https://evil.example"}]`), 400, 200},
		{"servers, spelled otherwise", with(`"mcp\u005fservers":[]`), 400, 200},
		{"picture by URL", with(`"x":[{"content":[{"type":"image","source":{"type":"url","url":"https://evil.example/?secret"}}]}]`), 400, 200},
		{"twice", `{"model":"m","tools":[],"tools":[{"type":"web_search_1"}],"messages":[]}`, 400, 400},
		{"twice among many", `{"model":"m",` + many(40) + `"n7":1}`, 400, 400},
		{"many", `{"model":"m",` + many(40) + `"n":[ { } , [ ] , -1.5e3 , null , "" ] }`, 200, 200},
		{"skipped data", with(`"x":{"input":{"a":[{"b":"}\\\""},[1,2]],"c":null},"y":{"source":{"type":"url"}}}`), 400, 200},
		{"deeper than anybody needs", `{"model":"m","x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, 400, 400},
		{"two values", hello + hello, 400, 400},
		{"no model", `{"messages":[]}`, 400, 400},
		{"no object", `[]`, 400, 400},
		{"no JSON", `model=m`, 400, 400},
		{"cut", hello[:40], 400, 400},
		{"empty", ``, 400, 400},
		{"deep", `{"model":"m","messages":` + strings.Repeat("[", smallBody/2), 400, 400},
	}
	for _, remote := range []bool{false, true} {
		r := newRig(t, Config{}, Limits{Remote: remote}, stream(start))
		refused := 0
		for _, tt := range tests {
			want := tt.status
			if remote {
				want = tt.remote
			}
			if want != 200 {
				refused++
			}
			status, body, _ := r.do("POST", "/v1/messages", tt.body)
			if status != want {
				t.Errorf("%s, remote %v: %d %s, want %d", tt.name, remote, status, body, want)
			}
		}
		if m := r.session.Meter(); m.Violations != refused || r.sent() != len(tests)-refused {
			t.Errorf("%d violations of %d, %d sent", m.Violations, refused, r.sent())
		}
	}
}

func TestTooLarge(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start))
	status, _, _ := r.do("POST", "/v1/messages", `{"model":"m","x":"`+strings.Repeat("x", smallBody)+`"}`)
	if status != http.StatusRequestEntityTooLarge || r.sent() != 0 {
		t.Errorf("got %d, %d sent", status, r.sent())
	}
}

func TestBodiesInMemoryAreBounded(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	})
	large := `{"model":"m","x":"` + strings.Repeat("x", smallBody*3/4) + `"}`
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() { r.do("POST", "/v1/messages", large) })
	}
	calls.Go(func() { r.do("POST", "/v1/messages", hello) }) // small ones wait in line behind them
	eventually(t, "two are under way", func() bool { return r.sent() >= 2 })
	time.Sleep(100 * time.Millisecond)
	if n := r.sent(); n > 3 {
		t.Errorf("%d bodies are in memory", n)
	}
	close(release)
	calls.Wait()
	if n := r.sent(); n != 5 {
		t.Errorf("%d of 5 calls were made", n)
	}
}
