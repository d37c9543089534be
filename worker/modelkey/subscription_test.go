package modelkey_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/modelkey"
)

func TestASubscriptionOfClaude(t *testing.T) {
	t.Parallel()
	const secret = "sk-ant-oat01-0123456789-abcdef"
	r := newRig(t)
	claude := stub(t, func(w http.ResponseWriter, req *http.Request) {
		if got := req.Header.Get("Authorization"); got != "Bearer "+secret || req.Header.Get("X-Api-Key") != "" || req.URL.Path != "/v1/messages" {
			t.Errorf("%s has %q and %q", req.URL.Path, got, req.Header.Get("X-Api-Key"))
		}
		if got := req.Header.Get("Anthropic-Beta"); got != "one-2026,two-2026,oauth-2025-04-20" {
			t.Errorf("the betas are %q", got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{begins, strings.Replace(says, "hi", "hi "+secret, 1), ends, stops} {
			_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", event)
		}
	})
	r.serve("anthropic", modelkey.Keys{"team": {API: "anthropic", Via: "subscription", URL: claude.URL, SecretFile: r.file("token", secret+"\n")}})
	if status, body := r.post("/v1/messages", ask); status != 200 || !strings.Contains(body, stops) || strings.Contains(body, secret) {
		t.Errorf("got %d %s", status, body)
	}
}

// account stands for OpenAI and for ChatGPT: it gives tokens for one that was not given back before, and answers
// calls that have the last one.
type account struct {
	*testing.T
	url  string
	mu   sync.Mutex
	next int    // of renewals; guarded by mu
	asks int    // requests for tokens; guarded by mu
	call string // the token that calls need; guarded by mu
	fail int    // status of the server of tokens; guarded by mu
	hold chan struct{}
}

const askCodex = `{"model":"gpt-6","stream":true,"store":false,"input":"<hello>"}`

// made returns a token for calls that ends then.
func made(name string, lasts time.Duration) string {
	claims := fmt.Sprintf(`{"exp":%d,"name":%q}`, time.Now().Add(lasts).Unix(), name)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmVk"
}

func newAccount(t *testing.T) *account {
	a := &account{T: t}
	a.url = stub(t, a.serve).URL
	return a
}

func (a *account) serve(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	if req.URL.Path == "/codex/responses" {
		a.respond(w, req)
		return
	}
	if req.URL.Path != "/oauth/token" {
		a.Errorf("%s was asked", req.URL.Path)
	}
	if a.hold != nil {
		a.hold <- struct{}{} // the request is here
		<-a.hold
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks++
	w.Header().Set("Content-Type", "application/json")
	var asked map[string]string
	if err := json.Unmarshal(body, &asked); err != nil || asked["grant_type"] != "refresh_token" || asked["client_id"] == "" {
		a.Errorf("asked for tokens with %s", body)
	}
	switch {
	case a.fail != 0:
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(a.fail)
	case asked["refresh_token"] != fmt.Sprint("renewal-token-", a.next):
		a.Errorf("%s was used again", asked["refresh_token"])
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":"refresh_token_reused","message":"log in again"}}`)
	default:
		a.next++
		a.call = made(fmt.Sprint(a.next), time.Hour)
		_, _ = fmt.Fprintf(w, `{"id_token":"id","access_token":%q,"refresh_token":"renewal-token-%d","expires_in":3600}`, a.call, a.next)
	}
}

func (a *account) respond(w http.ResponseWriter, req *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if req.Header.Get("Authorization") != "Bearer "+a.call || req.Header.Get("Chatgpt-Account-Id") != "account-of-the-team" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":"token_expired","message":"no"}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{
		`{"type":"response.output_text.delta","delta":"hi ` + a.call + `"}`,
		`{"type":"response.completed","response":{"model":"gpt-6","usage":{"input_tokens":100,"output_tokens":50}}}`,
	} {
		_, _ = fmt.Fprintf(w, "event: x\ndata: %s\n\n", event)
	}
}

// login writes the file of a login whose token for calls lasts so long.
func (a *account) login(file string, lasts time.Duration) {
	a.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.call = made(fmt.Sprint("login ", a.next), lasts)
	text := fmt.Sprintf(`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":%q,"access_token":%q,"refresh_token":"renewal-token-%d","account_id":"account-of-the-team"},"further":7}`, strings.Repeat("x", 1000), a.call, a.next)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.Fatal(err)
	}
}

// keys are those of a worker that uses the account.
func (a *account) keys(file string) modelkey.Keys {
	return modelkey.Keys{"team": {API: "openai", Via: "subscription", URL: a.url + "/codex", Tokens: a.url + "/oauth/token", SecretFile: file}}
}

func (a *account) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asks
}

func (a *account) set(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = status
}

// good makes a call that succeeds.
func (a *account) good(r *rig) {
	a.Helper()
	if status, body := r.post("/v1/responses", askCodex); status != 200 || !strings.Contains(body, "response.completed") || strings.Contains(body, "c2lnbmVk") {
		a.Errorf("got %d %s", status, body)
	}
}

func (a *account) worker(file string) *rig {
	r := newRig(a.T)
	r.serve("openai", a.keys(file))
	return r
}

// The token that renews a login can be used once, however many workers and calls want it renewed, also where an earlier
// worker was killed while it did so.
func TestALoginIsRenewedOnceForAllWorkers(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "auth.json")
	a.login(file, -time.Minute)
	for _, left := range []string{file + ".new", file + ".lock"} {
		if err := os.WriteFile(left, []byte("left by a worker that was killed "+strings.Repeat("x", 2000)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	workers := []*rig{a.worker(file), a.worker(link), a.worker(file)}
	var calls sync.WaitGroup
	for range 5 {
		for _, r := range workers {
			calls.Go(func() { a.good(r) })
		}
	}
	calls.Wait()
	if got := a.asked(); got != 1 {
		t.Errorf("tokens were asked for %d times", got)
	}
	data, err := os.ReadFile(file)
	var kept struct {
		Tokens  map[string]string
		Further int
		Renewed time.Time `json:"last_refresh"`
	}
	if err != nil || json.Unmarshal(data, &kept) != nil || kept.Tokens["refresh_token"] != "renewal-token-1" || kept.Tokens["id_token"] != "id" ||
		kept.Further != 7 || kept.Renewed.IsZero() {
		t.Errorf("the file has %s, %v", data, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if used := workers[0].session.Meter().Usage.Total(); used != 5*150 {
		t.Errorf("the first worker counted %d tokens", used)
	}
}

// A token that is refused before its time is renewed within the call.
func TestALoginIsRenewedWhenItIsRefused(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	file := filepath.Join(t.TempDir(), "auth.json")
	a.login(file, time.Hour)
	first, second := a.worker(file), a.worker(file)
	a.good(first)
	a.mu.Lock()
	a.call = "none of those that there are"
	a.mu.Unlock()
	a.good(first)
	a.good(second) // whose token is the old one, too
	if got := a.asked(); got != 1 {
		t.Errorf("tokens were asked for %d times", got)
	}
}

// Where tokens cannot be renewed, those that last are used; none is lost.
func TestALoginThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int           // of the server of tokens
		lasts  time.Duration // the token for calls
		breaks func(file string) error
		works  bool // the call
		asks   int
	}{
		"the server fails, the token lasts":     {status: 503, lasts: 2 * time.Minute, works: true, asks: 1},
		"the server fails, the token has ended": {status: 503, lasts: -time.Minute, asks: 1},
		"a redirect":                            {status: 307, lasts: -time.Minute, asks: 1},
		"no lock can be made, the token lasts":  {lasts: 2 * time.Minute, breaks: func(file string) error { return os.Mkdir(file+".lock", 0o700) }, works: true},
		"no file can be made":                   {lasts: -time.Minute, breaks: func(file string) error { return os.Mkdir(file+".new", 0o700) }},
		"the file is not one any more":          {lasts: -time.Minute, breaks: func(file string) error { return os.WriteFile(file, []byte("{}"), 0o600) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccount(t)
			file := filepath.Join(t.TempDir(), "auth.json")
			a.login(file, test.lasts)
			r := a.worker(file)
			if test.breaks != nil {
				if err := test.breaks(file); err != nil {
					t.Fatal(err)
				}
			}
			a.set(test.status)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			status, body := r.post("/v1/responses", askCodex)
			if works := status == 200; works != test.works || strings.Contains(body, "renewal-token") {
				t.Errorf("got %d %s", status, body)
			}
			if got := a.asked(); got != test.asks {
				t.Errorf("tokens were asked for %d times", got)
			}
			if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
				t.Errorf("the file has %s, %v", after, err)
			}
			if test.breaks == nil {
				a.set(0)
				a.login(file, -time.Minute)
				a.good(a.worker(file)) // the token that renews is still good
			}
		})
	}
}

// A login that is not accepted any more is a key that is refused, until a person has logged in again.
func TestALoginThatIsRefused(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	file := filepath.Join(t.TempDir(), "auth.json")
	a.login(file, -time.Minute)
	a.set(http.StatusBadRequest)
	r := a.worker(file)
	go func() { // it ends with its session
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+"/v1/responses", strings.NewReader(askCodex))
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+token)
			if res, err := http.DefaultClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		}
	}()
	<-r.session.Held()
	if h := r.session.Hold(); h.Key != "team" || !strings.Contains(h.Refused, "log in again") || strings.Contains(h.Error(), "renewal-token") {
		t.Errorf("held: %v", h)
	}
	a.set(0)
	a.login(file, time.Hour)
	a.good(a.worker(file))
}

// A renewal goes on although the call that needed it has ended: its token is used up.
func TestALoginIsRenewedAfterItsCall(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	a.hold = make(chan struct{})
	file := filepath.Join(t.TempDir(), "auth.json")
	a.login(file, -time.Minute)
	r := a.worker(file)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/responses", strings.NewReader(askCodex))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	ended := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		ended <- err
	}()
	<-a.hold
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	a.hold <- struct{}{}
	a.good(r)
	if got := a.asked(); got != 1 {
		t.Errorf("tokens were asked for %d times", got)
	}
}
