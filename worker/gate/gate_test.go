package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/budget"
)

// A rig is a gate that serves one session in front of a provider.

// messages makes the call that agents make.

// sent is how many requests reached the provider.

// stream answers with the parts of an event stream, each sent at once.

// eventually waits for what happens on another goroutine.

func TestForward(t *testing.T) {
	r := newRig(t, Config{}, Limits{}, stream(start, text, delta, stop))
	status, body, headers := r.do("POST", "/v1/messages?beta=true", hello,
		"X-Api-Key", token, "Authorization", "Bearer dummy", "Cookie", "a=b", "Proxy-Authorization", "x", "X-Forwarded-Host", "evil",
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
		"Accept-Encoding": {"identity"}, "Content-Length": {fmt.Sprint(len(hello))}, "Content-Type": {"application/json"},
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
	if want := (Meter{Usage: jobs.Usage{Input: 100, Output: 50, CacheRead: 30, CacheWrite: 20}, CostUSD: m.CostUSD, Unpriced: 200, Model: "claude-x-1", Calls: 1}); m != want {
		t.Errorf("meter %+v, want %+v", m, want)
	}
	if len(r.calls) != 1 || r.calls[0].Status != 200 || r.calls[0].Usage != m.Usage || r.calls[0].Err != nil || r.calls[0].Route != "POST /v1/messages" {
		t.Errorf("calls %+v", r.calls)
	}
}

func TestBearer(t *testing.T) {
	r := newRig(t, Config{Bearer: true}, Limits{}, stream(start))
	r.do("POST", "/v1/messages", hello, "X-Api-Key", token)
	if h := r.seen[0].Header; h.Get("Authorization") != "Bearer "+key || h.Get("X-Api-Key") != "" {
		t.Errorf("headers %v", h)
	}
}

// An answer that came as a whole is counted too.

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

// A request that two readers may read in two ways must not get through in

// either.

// many is n different names of an object.

// Once the budget is spent nothing more goes out, and the refusal has the

// provider's form, or the agent would try again.

// What a call uses after it has spent the budget is counted, and no news.
func TestBudgetIsSpentOnce(t *testing.T) {
	s, c := NewSession("s", token, Limits{Tokens: 10}), &call{}
	var err error
	if c.hold, err = s.reserve(t.Context(), budget.Amount{}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		c.used = c.used.Add(jobs.Usage{Output: 6})
		if got := s.use(c, jobs.Usage{Output: 6}, 0, true); got != want {
			t.Errorf("use %d: spent %v, want %v", i, got, want)
		}
	}
	if m := s.Meter(); m.Usage.Output != 18 {
		t.Errorf("meter %+v", m)
	}
}

// Calls that are under way when another spends the budget are cut.

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
		// 100 + 30 + 20, and about a token for each piece of text; more on a slow machine, for
		// what the model may have thought meanwhile.
		{"stream is cut", func(w http.ResponseWriter, req *http.Request) {
			stream(start, strings.Repeat(text, 9))(w, req)
			panic(http.ErrAbortHandler)
		}, 200, "!unexpected EOF", func(m Meter) bool { return m.Usage.Input == 100 && m.Usage.Output >= 9 }},
		{"begins, and says nothing", func(w http.ResponseWriter, req *http.Request) {
			stream("")(w, req)
			hang(w, req)
		}, 200, "!unexpected EOF", func(m Meter) bool { return m.Usage.Input == 6 }}, // of the model's name, "user" and "hello"
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
	go func() { served <- g.Serve(ctx, NewSession("s", token, Limits{}), front) }()
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
	go func() { served <- g.Serve(t.Context(), NewSession("s", token, Limits{}), l) }()
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestNew(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no key":        {Keys: []Credential{{}}},
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
	if g, err := New(Config{Key: key}); err != nil || g.Empty() {
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

// A body that is made to be slow must not keep the worker busy for long.

// A run whose model has answered once may be what it says, whatever failed later; one whose model has
// answered nothing is no success. The next run begins anew.
func TestARunWithoutAnAnswerIsDoubted(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	r := newRig(t, Config{}, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":1,"output_tokens":1}}`)
	})
	success, failure := jobs.Ended{Outcome: jobs.Success}, jobs.BudgetExceeded.Ended("its own words")
	says := func(what string, believed bool) {
		t.Helper()
		if got := r.session.Failing().Doubt(success); (got == success) != believed || !believed && got.Reason != jobs.AgentFailed {
			t.Errorf("%s: a success is %+v", what, got)
		}
		if got := r.session.Failing().Doubt(failure); got != failure {
			t.Errorf("%s: a failure is %+v", what, got)
		}
	}
	says("nothing was asked", true)
	fails.Store(true)
	r.messages()
	says("the only call failed", false)
	fails.Store(false)
	r.messages()
	says("the next one was answered", true)
	fails.Store(true)
	r.messages()
	says("one was answered, and the last one failed", true)
	r.session.Forgive()
	r.messages()
	says("the only call of the next run failed", false)
}
