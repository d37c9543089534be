package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key   = "sk-real-0123456789abcdef"
	hello = `{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
	start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x-1\",\"usage\":" +
		"{\"input_tokens\":100,\"cache_read_input_tokens\":30,\"cache_creation_input_tokens\":20,\"output_tokens\":1}}}\n\n"
	text  = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n"
	delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":50}}\n\n"
	stop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

// smallBody is the largest body in these tests, to keep them quick.
const smallBody = 1 << 20

// A rig is a gate that serves one session in front of a provider.
type rig struct {
	t       *testing.T
	session *Session
	url     string
	addr    string
	client  *http.Client
	stop    func() // ends Serve and waits for it

	mu         sync.Mutex
	seen       []*http.Request // by the provider
	bodies     []string
	calls      []Call
	violations []Violation
}

// newRig starts a provider that answers with f, a gate and a session.
func newRig(t *testing.T, cfg Config, limits Limits, f http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{t: t}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.seen, r.bodies = append(r.seen, req), append(r.bodies, string(body))
		r.mu.Unlock()
		f(w, req)
	}))
	cfg.Key, cfg.Upstream = key, provider.URL+"/base/"
	cfg.Hooks = Hooks{
		Called:    func(_ string, c Call) { r.mu.Lock(); r.calls = append(r.calls, c); r.mu.Unlock() },
		Violation: func(_ string, v Violation) { r.mu.Lock(); r.violations = append(r.violations, v); r.mu.Unlock() },
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.maxBody = smallBody
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.session, r.addr, r.url = NewSession("s1", limits), l.Addr().String(), "http://"+l.Addr().String()
	r.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, r.session, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		r.stop()
		r.client.CloseIdleConnections()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		provider.Close()
	})
	return r
}

func (r *rig) do(method, path, body string, headers ...string) (int, string, http.Header) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		out = append(out, "!"+err.Error()...)
	}
	return res.StatusCode, string(out), res.Header
}

// messages makes the call that agents make.
func (r *rig) messages() (int, string) {
	r.t.Helper()
	status, body, _ := r.do("POST", "/v1/messages?beta=true", hello)
	return status, body
}

// sent is how many requests reached the provider.
func (r *rig) sent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// stream answers with the parts of an event stream, each sent at once.
func stream(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

// eventually waits for what happens on another goroutine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestForward(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start, text, delta, stop))
	status, body, headers := r.do("POST", "/v1/messages?beta=true", hello,
		"X-Api-Key", "dummy", "Authorization", "Bearer dummy", "Cookie", "a=b", "Proxy-Authorization", "x", "X-Forwarded-Host", "evil",
		"Anthropic-Beta", "tools-1", "Anthropic-Version", "2023-06-01", "User-Agent", "agent/1", "Accept-Encoding", "gzip")
	if status != 200 || body != start+text+delta+stop {
		t.Errorf("got %d %q", status, body)
	}
	if got := headers.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	req := r.seen[0]
	if req.URL.Path != "/base/v1/messages" || req.URL.RawQuery != "beta=true" || r.bodies[0] != hello {
		t.Errorf("sent %s %s %q", req.Method, req.URL, r.bodies[0])
	}
	want := http.Header{
		"X-Api-Key": {key}, "Anthropic-Beta": {"tools-1"}, "Anthropic-Version": {"2023-06-01"}, "User-Agent": {"agent/1"},
		"Accept-Encoding": {"identity"}, "Content-Length": {fmt.Sprint(len(hello))},
	}
	for name, values := range req.Header {
		if !slices.Equal(values, want[name]) {
			t.Errorf("header %s: %q was sent, want %q", name, values, want[name])
		}
	}
	if len(req.Header) != len(want) {
		t.Errorf("headers %v, want %v", req.Header, want)
	}
	m := r.session.Meter()
	if want := (Meter{Usage: jobs.Usage{Input: 100, Output: 50, CacheRead: 30, CacheWrite: 20}, Unpriced: 200, Model: "claude-x-1", Calls: 1}); m != want {
		t.Errorf("meter %+v, want %+v", m, want)
	}
	if len(r.calls) != 1 || r.calls[0].Status != 200 || r.calls[0].Usage != m.Usage || r.calls[0].Err != nil || r.calls[0].Route != "POST /v1/messages" {
		t.Errorf("calls %+v", r.calls)
	}
}

func TestBearer(t *testing.T) {
	r := newRig(t, Config{Bearer: true}, Limits{}, stream(start))
	r.do("POST", "/v1/messages", hello, "X-Api-Key", "dummy")
	if h := r.seen[0].Header; h.Get("Authorization") != "Bearer "+key || h.Get("X-Api-Key") != "" {
		t.Errorf("headers %v", h)
	}
}

// An answer that came as a whole is counted too.
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

// What comes is passed on at once: an agent shows progress, and a watchdog
// looks for it.
func TestStreamIsNotHeldBack(t *testing.T) {
	more := make(chan struct{})
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		stream(start)(w, req)
		select {
		case <-more:
		case <-req.Context().Done():
		}
		stream(text, delta, stop)(w, req)
	})
	res, err := r.client.Post(r.url+"/v1/messages", "application/json", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := make([]byte, len(start))
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != start {
		t.Fatalf("got %q, err %v", got, err)
	}
	if m := r.session.Meter(); m.Usage.Input != 100 {
		t.Errorf("input is not counted while the answer comes: %+v", m)
	}
	close(more)
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != text+delta+stop {
		t.Errorf("got %q, err %v", rest, err)
	}
}

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
		got := raw(line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf("%s: %q", line, got)
		}
		refused++
	}
	for _, host := range []string{"api.anthropic.com", "evil.example:3128", "10.0.0.1"} {
		if got := raw("POST /v1/messages HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403") {
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

// A request that two readers may read in two ways must not get through in
// either.
func TestSmuggling(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start, delta, stop))
	inner := "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
	for name, request := range map[string]string{
		"length and chunks": "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"two lengths":       "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n" + inner,
		"two encodings":     "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"folded header":     "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n Authorization: c\r\nContent-Length: 0\r\n\r\n",
		"two hosts":         "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n",
		"upgrade":           "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
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

// many is n different names of an object.
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

// Once the budget is spent nothing more goes out, and the refusal has the
// provider's form, or the agent would try again.
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
	if m := r.session.Meter(); m.Calls != 2 || m.Refused != 1 || tokens(m.Usage) != 400 {
		t.Errorf("meter %+v", m)
	}
	select {
	case <-NewSession("s", Limits{Tokens: 5, Used: jobs.Usage{Output: 5}}).Spent():
	default:
		t.Error("a budget that was spent before is open")
	}
}

// What a call uses after it has spent the budget is counted, and no news.
func TestBudgetIsSpentOnce(t *testing.T) {
	s, c := NewSession("s", Limits{Tokens: 10}), &call{}
	for i, want := range []bool{false, true, false} {
		if got := s.use(c, jobs.Usage{Output: 6}, nil); got != want {
			t.Errorf("use %d: spent %v, want %v", i, got, want)
		}
	}
	if m := s.Meter(); m.Usage.Output != 18 {
		t.Errorf("meter %+v", m)
	}
}

// A budget of money holds where the price is known, whatever the agent itself
// makes of it.
func TestBudgetInMoney(t *testing.T) {
	prices := map[string]Price{
		"claude":   {Input: 1e9},
		"claude-x": {Input: 1000, Output: 2000, CacheRead: 100, CacheWrite: 1500}, // 0.1 + 0.1 + 0.003 + 0.03
		"":         {Input: 1e9},
	}
	r := newRig(t, Config{Prices: prices}, Limits{USD: 0.7, UsedUSD: 0.3}, stream(start, delta, stop))
	for i, want := range []int{200, 200, 400} {
		if status, body := r.messages(); status != want || want == 400 && !strings.Contains(body, "0.7 USD") {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
	if m := r.session.Meter(); math.Abs(m.CostUSD-0.466) > 1e-9 || m.Unpriced != 0 {
		t.Errorf("meter %+v", m)
	}
	r = newRig(t, Config{Prices: map[string]Price{"gpt": {Input: 1e9}}}, Limits{USD: 0.7}, stream(start, delta, stop))
	for range 3 {
		if status, _ := r.messages(); status != 200 {
			t.Errorf("got %d without a price", status)
		}
	}
	if m := r.session.Meter(); m.CostUSD != 0 || m.Unpriced != 600 {
		t.Errorf("meter %+v", m)
	}
}

// Calls that are under way when another spends the budget are cut.
func TestBudgetCutsOthers(t *testing.T) {
	var begun sync.WaitGroup
	begun.Add(3)
	r := newRig(t, Config{}, Limits{Tokens: 1000}, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("beta") == "true" { // the one that spends it
			begun.Wait()
			stream(strings.Replace(start, ":100,", ":5000,", 1), delta, stop)(w, req)
			return
		}
		if req.Header.Get("X-App") != "silent" {
			stream(start)(w, req)
		}
		begun.Done()
		<-req.Context().Done()
	})
	results := make(chan string, 3)
	for _, app := range []string{"talks", "talks", "silent"} {
		go func() {
			status, body, _ := r.do("POST", "/v1/messages", hello, "X-App", app)
			results <- fmt.Sprintf("%s %d %s", app, status, body)
		}()
	}
	status, body := r.messages()
	if status != 200 || !strings.HasSuffix(body, stop) {
		t.Errorf("the call that spends the budget is cut: %d %q", status, body)
	}
	for range 3 {
		got := <-results
		if strings.HasPrefix(got, "silent") && !strings.Contains(got, "400") || strings.HasPrefix(got, "talks") && !strings.Contains(got, "!") {
			t.Errorf("not cut: %q", got)
		}
	}
}

// The key does not come back, whatever the provider does with it.
func TestKeyDoesNotComeBack(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		k := req.Header.Get("X-Api-Key")
		w.Header().Set("Request-Id", "r "+k)
		w.Header().Set("X-Other", k)
		w.WriteHeader(401)
		for _, part := range []string{"your key " + k + " is " + k[:5], k[5:9], k[9:] + " bad" + k[:7], "x", k, k[:10]} {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
			time.Sleep(2 * time.Millisecond) // else the parts arrive as one
		}
	})
	status, body, headers := r.do("POST", "/v1/messages", hello)
	stars := strings.Repeat("*", len(key))
	if want := "your key " + stars + " is " + stars + " bad" + key[:7] + "x" + stars + key[:10]; status != 401 || body != want {
		t.Errorf("got  %q\nwant %q", body, want)
	}
	if all := fmt.Sprint(headers); strings.Contains(all, key) || headers.Get("X-Other") != "" {
		t.Errorf("headers %v", headers)
	}
}

func TestScrubberInPieces(t *testing.T) {
	in := strings.Repeat("aab", 5) + "aabaac" + "aabaabaac" + "aabaa"
	want := strings.ReplaceAll(in, "aabaac", "******")
	for size := 1; size <= len(in); size++ {
		s := &scrubber{secret: []byte("aabaac")}
		var out bytes.Buffer
		for p := range slices.Chunk([]byte(in), size) {
			out.Write(s.next(p))
		}
		out.Write(s.rest())
		if out.String() != want {
			t.Errorf("pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}

func TestProviderFails(t *testing.T) {
	const soon = 100 * time.Millisecond
	hang := func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	tests := []struct {
		name   string
		f      http.HandlerFunc
		status int
		says   string
		check  func(m Meter) bool
	}{
		{"rate limit", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}, 429, "", func(m Meter) bool { return m.Limited == 1 && m.Failed == 0 }},
		{"overloaded", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529) }, 529, "", func(m Meter) bool { return m.Failed == 1 }},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "does not answer", func(m Meter) bool { return m.Failed == 1 }},
		{"hangs", hang, 502, "does not answer", func(m Meter) bool { return m.Failed == 1 }},
		{"redirect", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://evil.example/")
			w.WriteHeader(307)
		}, 502, "cannot be passed on", func(m Meter) bool { return m.Failed == 1 }},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte{1, 2, 3})
		}, 502, "cannot be passed on", func(m Meter) bool { return m.Failed == 1 }},
		// 100 + 30 + 20, and about a token for each piece of text.
		{"stream is cut", func(w http.ResponseWriter, req *http.Request) {
			stream(start, strings.Repeat(text, 9))(w, req)
			panic(http.ErrAbortHandler)
		}, 200, "!unexpected EOF", func(m Meter) bool { return m.Usage.Input == 100 && m.Usage.Output == 9 }},
		{"begins, and says nothing", func(w http.ResponseWriter, req *http.Request) {
			stream("")(w, req)
			hang(w, req)
		}, 200, "!unexpected EOF", func(m Meter) bool { return m.Usage == jobs.Usage{} }},
		{"stream pauses for ever", func(w http.ResponseWriter, req *http.Request) {
			stream(start)(w, req)
			hang(w, req)
		}, 200, "!unexpected EOF", func(m Meter) bool { return m.Usage.Input == 100 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, Config{Answer: soon, Silence: soon}, Limits{}, tt.f)
			status, body := r.messages()
			if status != tt.status || !strings.Contains(body, tt.says) {
				t.Errorf("got %d %q", status, body)
			}
			eventually(t, "the call is told", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.calls) == 1 })
			if got := r.calls[0].RetryAfter; (got == 7*time.Second) != (tt.status == 429) {
				t.Errorf("to be tried again after %v", got)
			}
			if m := r.session.Meter(); !tt.check(m) {
				t.Errorf("meter %+v", m)
			}
			for _, c := range r.calls {
				if strings.Contains(fmt.Sprint(c.Err), key) {
					t.Errorf("the key is told: %v", c.Err)
				}
			}
		})
	}
}

func TestProviderIsDown(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	g, err := New(Config{Key: key, Upstream: "http://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- g.Serve(ctx, NewSession("s", Limits{}), front) }()
	r.url = "http://" + front.Addr().String()
	if status, body := r.messages(); status != 502 || strings.Contains(body, addr) {
		t.Errorf("got %d %s", status, body)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// An agent that hangs up before the answer's end must not get it for nothing,
// and the provider must not go on for it.
func TestAgentHangsUp(t *testing.T) {
	ended := make(chan struct{})
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		stream(start, strings.Repeat(text, 20))(w, req)
		<-req.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", r.url+"/v1/messages", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, len(start)+20*len(text))); err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	<-ended
	eventually(t, "the call is told", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.calls) == 1 })
	if m := r.session.Meter(); m.Usage.Output != 20 {
		t.Errorf("meter %+v, want about 20 tokens of output", m)
	}
}

// Serve leaves nothing behind: TestMain looks for goroutines.
func TestServeEnds(t *testing.T) {
	r := newRig(t, Config{Parallel: 2}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		stream(start)(w, req)
		<-req.Context().Done()
	})
	results := make(chan error, 5)
	for range 5 { // two under way, three waiting
		go func() {
			res, err := r.client.Post(r.url+"/v1/messages", "", strings.NewReader(hello))
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			results <- err
		}()
	}
	eventually(t, "two calls are under way", func() bool { return r.sent() == 2 })
	time.Sleep(20 * time.Millisecond)
	if n := r.sent(); n != 2 {
		t.Errorf("%d calls at once, want 2", n)
	}
	r.stop()
	if len(r.calls) != 2 {
		t.Errorf("%d calls have ended when Serve has, want 2", len(r.calls))
	}
	for range 5 {
		if err := <-results; err == nil {
			t.Error("a call ended as if all were well")
		}
	}
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("the listener is open")
	}
}

// What an agent sends is kept outside of its jail, so there is a bound to it.
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

// The jail's end closes the listener; that is no error.
func TestListenerCloses(t *testing.T) {
	g, err := New(Config{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- g.Serve(t.Context(), NewSession("s", Limits{}), l) }()
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// An agent that opens connections must not use up the worker's descriptors.
func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, Config{Parallel: 1}, Limits{}, stream(start))
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 10 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	answered := func(c net.Conn) bool {
		_, _ = io.WriteString(c, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return err == nil
	}
	n := 0
	for _, c := range conns {
		if answered(c) {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d connections are served, want 4", n)
	}
	conns[0].Close()
	conns[1].Close()
	eventually(t, "a waiting connection is served", func() bool { return answered(conns[9]) || answered(conns[4]) })
}

func TestNew(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no key":        {},
		"API":           {Key: key, API: "psychic"},
		"line end":      {Key: key + "\n"},
		"in the clear":  {Key: key, Upstream: "http://api.example"},
		"not a URL":     {Key: key, Upstream: "api.example"},
		"user":          {Key: key, Upstream: "https://user:" + key + "@api.example"},
		"query":         {Key: key, Upstream: "https://api.example?" + key},
		"other schemes": {Key: key, Upstream: "ftp://api.example"},
		"proxy":         {Key: key, Proxy: "nowhere"},
	} {
		_, err := New(cfg)
		if err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if g, err := New(Config{Key: key}); err != nil || g.upstream.String() != "https://api.anthropic.com" {
		t.Errorf("default: %v", err)
	}
}

func TestKeyDoesNotShow(t *testing.T) {
	cfg := Config{Key: key}
	out, err := json.Marshal(struct{ K Key }{key})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v %#v %s %q %x", cfg, cfg, cfg.Key, cfg.Key, cfg.Key), errors.Join(fmt.Errorf("%v", cfg)).Error(), string(out)} {
		if strings.Contains(s, key) || strings.Contains(s, fmt.Sprintf("%x", key)) {
			t.Errorf("it shows: %s", s)
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
		if status, body, _ := r.do("POST", "/v1/responses", tt.body, "Authorization", "Bearer dummy"); status != tt.status {
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
	// What is not told is estimated: 447 bytes that went in, two pieces.
	if m := r.session.Meter(); m.Usage != (jobs.Usage{Input: 120 + 111, Output: 152, CacheRead: 180}) {
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

func FuzzCounter(f *testing.F) {
	f.Add([]byte(start+text+delta+stop), 7, true)
	f.Add([]byte(`{"type":"message","usage":{"input_tokens":7}}`), 3, false)
	f.Fuzz(func(t *testing.T, in []byte, size int, isStream bool) {
		sum := func(size int) *counter {
			c := &counter{read: readAnthropic, stream: isStream}
			for p := range slices.Chunk(in, size) {
				before := tokens(c.usage)
				c.write(p)
				if tokens(c.usage) < before {
					t.Fatal("a count fell")
				}
			}
			c.finish()
			return c
		}
		whole, pieces := sum(len(in)+1), sum(size&0x3f+1)
		if whole.usage != pieces.usage || whole.model != pieces.model {
			t.Errorf("as a whole %+v, in pieces %+v", whole.usage, pieces.usage)
		}
	})
}

func FuzzInspect(f *testing.F) {
	f.Add([]byte(hello))
	f.Add([]byte(`{"model":"0"} }`))
	f.Add([]byte(`{"model":"m","tools":[{"type":"web_search_1"}],"a":{"b":[{"source":{"type":"url"}}]}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := anthropicRules.inspect(in, false); err != nil {
			return
		}
		// What passes means the same to a reader that takes the last of two
		// names and to one that takes the first: there are no two.
		var body struct {
			Tools []struct{ Type string }
			MCP   json.RawMessage `json:"mcp_servers"`
		}
		if !json.Valid(in) {
			t.Fatalf("passed, but is not JSON: %q", in)
		}
		var top map[string]json.RawMessage
		_ = json.Unmarshal(in, &top)
		if _, ok := top["mcp_servers"]; ok {
			t.Fatalf("passed with servers: %q", in)
		}
		_ = json.Unmarshal(top["tools"], &body.Tools)
		for _, tool := range body.Tools {
			if strings.HasPrefix(tool.Type, "web_") {
				t.Fatalf("passed with %s: %q", tool.Type, in)
			}
		}
	})
}

// A body that is made to be slow must not keep the worker busy for long.
func BenchmarkInspect(b *testing.B) {
	for name, part := range map[string]string{
		"prose": `{"role":"user","content":[{"type":"text","text":"` + strings.Repeat(`lorem ipsum \n`, 100) + `"}]},`,
		"dust":  strings.Repeat(`{"a":[1]},`, 100),
	} {
		body := []byte(`{"model":"m","messages":[` + strings.Repeat(part, 1000) + `{}]}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := anthropicRules.inspect(body, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
