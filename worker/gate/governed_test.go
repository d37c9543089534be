package gate

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fails answers with an error of the API, until it answers with the stream.
func fails(times int32, status int, body string, headers ...string) http.HandlerFunc {
	var asked atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/base/v1/messages" && asked.Add(1) > times {
			stream(start, text, delta, stop)(w, r)
			return
		}
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	tooMany = `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`
	tooBusy = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	noKey   = `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`
)

// What the provider refuses for its limits is asked again, and the agent gets the answer.
func TestRefusalsDoNotReachTheAgent(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]http.HandlerFunc{
		"its rate": fails(1, 429, tooMany, "Retry-After-Ms", "20"),
		"overload": fails(2, 529, tooBusy, "Retry-After-Ms", "20"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{Govern: true}, Limits{}, f)
			status, body := r.messages()
			if status != 200 || !strings.Contains(body, "message_stop") || r.sent() != 2 && name == "its rate" || r.sent() != 3 && name == "overload" {
				t.Errorf("the agent got %d %s after %d requests", status, body, r.sent())
			}
			m := r.session.Meter()
			if m.Calls != 1 || m.Limited+m.Failed != r.sent()-1 || m.Usage.Total() != 200 {
				t.Errorf("meter %+v", m)
			}
			for n, body := range r.bodies {
				if body != hello {
					t.Errorf("request %d had the body %s", n, body)
				}
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.calls) != 1 || r.calls[0].Waited < 20*time.Millisecond {
				t.Errorf("calls %+v", r.calls)
			}
		})
	}
}

// What waiting does not cure reaches the agent as it is: wrong requests, a request that is refused each time, and what
// the provider says will not be accepted.
func TestWhatWaitingDoesNotCure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status, requests int
		body             string
		headers          []string
	}{
		"a wrong request":  {400, 1, `{"type":"error","error":{"type":"invalid_request_error","message":"no"}}`, nil},
		"an error":         {500, 1, `{"type":"error","error":{"type":"api_error","message":"no"}}`, nil},
		"no permission":    {403, 1, `{"type":"error","error":{"type":"permission_error","message":"no"}}`, nil},
		"should not retry": {429, 1, tooMany, []string{"X-Should-Retry", "false"}},
		"always refused":   {529, maxRefused, tooBusy, []string{"Retry-After-Ms", "1"}},
		"no body":          {404, 1, "", nil},
		"a large body":     {400, 1, `{"x":"` + strings.Repeat("x", 3*maxError) + `"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{Govern: true}, Limits{}, fails(100, c.status, c.body, c.headers...))
			status, body := r.messages()
			if status != c.status || body != c.body || r.sent() != c.requests {
				t.Errorf("the agent got %d and %d bytes after %d requests, want %d and %d bytes after %d", status, len(body), r.sent(), c.status, len(c.body), c.requests)
			}
		})
	}
}

// A call that would wait for longer than its agent holds the session.
func TestALongWaitHoldsTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Govern: true}, Limits{Patience: time.Minute}, fails(9, 429, tooMany, "Retry-After", "7200"))
	asked := make(chan error, 1)
	go func() {
		res, err := r.ask("POST", "/v1/messages", hello)
		if err == nil {
			res.Body.Close()
		}
		asked <- err
	}()
	<-r.session.Held()
	h := r.session.Hold()
	if left := time.Until(h.Until); left < 119*time.Minute || left > 121*time.Minute || h.Model != "claude-x" || h.Refused != "" {
		t.Errorf("hold %+v", h)
	}
	r.stop()
	if err := <-asked; err == nil {
		t.Error("the agent got an answer")
	}
	if r.sent() != 1 {
		t.Errorf("%d requests", r.sent())
	}
}

// A key that the provider refuses holds the session, unless it is only this request that is refused
// with it; and nothing is sent with it any more.
func TestAKeyThatIsRefusedHoldsTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{Govern: true}, Limits{}, fails(100, 401, noKey))
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			if res, err := r.ask("POST", "/v1/messages", hello); err == nil {
				res.Body.Close()
				t.Error("the agent got an answer")
			}
		})
		<-r.session.Held()
	}
	if h := r.session.Hold(); h.Refused != "status 401, authentication_error" || strings.Contains(h.Error(), key) {
		t.Errorf("hold %v", h)
	}
	if r.sent() != 2 { // the call, and the list of models
		t.Errorf("%d requests", r.sent())
	}
	r.stop()
	asking.Wait()
}

func TestARequestThatIsRefusedWithAGoodKey(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"the list of models is not refused": {Govern: true}, "attended": {Govern: true, PassRefused: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, cfg, Limits{}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/base/v1/models" && r.Header.Get("X-Api-Key") == key && r.URL.RawQuery == "" {
					return
				}
				fails(100, 401, noKey)(w, r)
			})
			status, body := r.messages()
			if status != 401 || body != noKey || r.session.Hold() != nil {
				t.Errorf("the agent got %d %s; hold %v", status, body, r.session.Hold())
			}
		})
	}
}

// An account without credit is as a refused key, and a quota that begins anew is a wait.
func TestKindsOfRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		body    string
		refused string
	}{
		"no credit":        {402, `{"type":"error","error":{"type":"billing_error","message":"no"}}`, "status 402, billing_error"},
		"a quota":          {429, `{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}`, ""},
		"a quota for good": {429, `{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}`, "status 429, insufficient_quota"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Config{Govern: true}, Limits{}, fails(100, c.status, c.body))
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				if res, err := r.ask("POST", "/v1/messages", hello); err == nil {
					res.Body.Close()
				}
			}()
			<-r.session.Held()
			if h := r.session.Hold(); h.Refused != c.refused {
				t.Errorf("hold %+v", h)
			}
			r.stop()
			<-asked
		})
	}
}

// Only beta features of the policy pass, in each form of the header.
func TestBetasOfThePolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, Limits{Policy: Allowed{Betas: []string{"interleaved-thinking-*", "one"}}}, stream(start, text, delta, stop))
	for header, passes := range map[string]bool{
		"":                                     true,
		"one":                                  true,
		"one, interleaved-thinking-2025-05-14": true,
		"one,context-1m-2025-08-07":            false,
		" two":                                 false,
	} {
		before := r.sent()
		status, answer, _ := r.do("POST", "/v1/messages", hello, "Anthropic-Beta", header)
		if (status == 200) != passes || (r.sent() > before) != passes || !passes && (status != 400 || !strings.Contains(answer, "of the policy")) {
			t.Errorf("%q: %d %s", header, status, answer)
		}
	}
	if len(r.violations) != 2 {
		t.Errorf("violations %+v", r.violations)
	}
}

// Only models and tiers of the policy pass, however a request names them.
func TestModelsOfThePolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, Limits{Policy: Allowed{Models: []string{"claude-sonnet-*", "claude-haiku-4-5"}, Tiers: []string{"standard_only", "fast"}}}, stream(start, text, delta, stop))
	for body, passes := range map[string]bool{
		`{"model":"claude-sonnet-4-5"}`:                                    true,
		`{"model":"claude-haiku-4-5"}`:                                     true,
		`{"model":"claude-haiku-4-5-x"}`:                                   false,
		`{"model":"claude-opus-5"}`:                                        false,
		`{"model":"\u0063laude-opus-5"}`:                                   false,
		`{"model":"claude-sonnet-"}`:                                       true,
		`{"model":"claude-sonnet-5","service_tier":"standard_only"}`:       true,
		`{"model":"claude-sonnet-5","service_tier":"auto"}`:                false,
		`{"model":"claude-sonnet-5","speed":"fast"}`:                       true,
		`{"model":"claude-sonnet-5","speed":"other"}`:                      false,
		`{"model":"claude-sonnet-5","service_tier":"auto","speed":"fast"}`: false,
		`{"model":"claude-sonnet-5","metadata":{"service_tier":"fast"}}`:   true,
	} {
		before := r.sent()
		status, answer, _ := r.do("POST", "/v1/messages", body)
		if (status == 200) != passes || (r.sent() > before) != passes || !passes && (status != 400 || !strings.Contains(answer, "of the policy")) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if len(r.violations) != 6 {
		t.Errorf("violations %+v", r.violations)
	}
}
