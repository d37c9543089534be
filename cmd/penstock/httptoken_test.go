package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

// get asks an address with a token and returns the status and what came with it; 0 is
// no answer.
func (f *fixture) get(address, path, token string) (int, string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		f.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// becomes waits until an address answers with a status.
func (f *fixture) becomes(want int, address, path, token string) {
	f.Helper()
	for end := time.Now().Add(jobstest.Patience); ; time.Sleep(20 * time.Millisecond) {
		status, body := f.get(address, path, token)
		if status == want {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("GET %s: %d %s, want %d", path, status, body, want)
		}
	}
}

// A token that a command adds opens the running pool, as far as its role goes, until it
// is removed or expires. Its presenter cannot tell why it is refused; the log can.
func TestTokensOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serveHTTP()
	add := func(args ...string) string {
		return strings.TrimSpace(f.run(append([]string{"token", "add"}, args...)...))
	}
	viewer, scaler, short := add("v", "--role", "viewer"), add("k", "--role", "autoscale"), add("s", "--role", "operator", "--expires", "1s")
	f.becomes(200, address, "/v1/jobs", viewer)
	f.becomes(403, address, "/v1/tokens", viewer)
	f.becomes(200, address, "/v1/queues", scaler)
	f.becomes(200, address, "/v1/autoscale", scaler)
	f.becomes(403, address, "/v1/jobs", scaler)
	f.becomes(401, address, "/v1/jobs", short)
	f.run("token", "rm", "v")
	f.becomes(401, address, "/v1/jobs", viewer)
	for _, presented := range []string{viewer, short, viewer[:20], "pst_", "", strings.Repeat("x", 4000)} {
		if status, body := f.get(address, "/v1/jobs", presented); status != 401 || strings.Contains(body, "removed") || strings.Contains(body, "expired") {
			t.Errorf("%q: %d %s", presented, status, body)
		}
	}
	if list := f.run("token", "ls", "-o", "jsonl"); !strings.Contains(list, `"name":"k"`) || strings.Contains(list, "pst_") {
		t.Errorf("listed are %s", list)
	}
}
