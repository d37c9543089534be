package gate

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	key   = "sk-real-0123456789abcdef"
	token = "penstock-token-of-the-jail"
	hello = `{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hello"}]}`
	start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x-1\",\"usage\":" +
		"{\"input_tokens\":100,\"cache_read_input_tokens\":30,\"cache_creation_input_tokens\":20,\"output_tokens\":1}}}\n\n"
	text  = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n"
	delta = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":50}}\n\n"
	stop  = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
)

// smallBody is the largest body in these tests, to keep them quick.

const smallBody = 1 << 20

type rig struct {
	t       *testing.T
	gate    *Gate
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
		Called: func(_ string, c Call) { r.mu.Lock(); r.calls = append(r.calls, c); r.mu.Unlock() },
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.maxBody = smallBody
	r.gate = g
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.session, r.addr, r.url = NewSession("s1", token, limits), l.Addr().String(), "http://"+l.Addr().String()
	r.session.Refused = func(v Violation) { r.mu.Lock(); r.violations = append(r.violations, v); r.mu.Unlock() }
	r.client = &http.Client{Transport: known{&http.Transport{DisableCompression: true}}}
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

// known sends the token along where a test sends no other credentials.
type known struct{ *http.Transport }

func (k known) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header["X-Api-Key"] == nil && r.Header["Authorization"] == nil {
		r = r.Clone(r.Context())
		r.Header.Set("X-Api-Key", token)
	}
	return k.Transport.RoundTrip(r)
}

// ask sends a request and returns as soon as its answer begins.
func (r *rig) ask(method, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.client.Do(req)
}

// do sends a request and returns its whole answer.
func (r *rig) do(method, path, body string, headers ...string) (int, string, http.Header) {
	r.t.Helper()
	res, err := r.ask(method, path, body, headers...)
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

func (r *rig) messages() (int, string) {
	r.t.Helper()
	status, body, _ := r.do("POST", "/v1/messages?beta=true", hello)
	return status, body
}

func (r *rig) sent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func stream(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Serve leaves nothing behind: TestMain looks for goroutines.
