package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// The level of the log is shown and changed on the admin address, for programs that have the
// token. Pages may not, also with the token, and what is not understood changes nothing.
func TestTheLevelOverHTTP(t *testing.T) {
	t.Parallel()
	shell := call(t)
	monitor := NewMonitor(shell, Worker, 1)
	admin, err := ListenAdmin("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.Open(t.Context(), shell, "serve", monitor.Hooks())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- monitor.Run(ctx, p, admin) }()
	waitFor(t, "it answers", func() bool { return status(admin, "/livez") == 200 })
	file := filepath.Join(shell.Config.Data, "admin-token")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token's file: %v %v", info, err)
	}
	token, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	right := []string{"Authorization", "Bearer " + strings.TrimSpace(string(token)), "Content-Type", "application/json"}
	with := func(more ...string) []string { return append(append([]string{}, right...), more...) }
	for _, step := range []struct {
		what, method, body string
		header             []string
		status             int
		level              slog.Level // afterwards
	}{
		{"nothing", "GET", "", nil, 401, slog.LevelWarn},
		{"no token", "PUT", `{"level":"debug"}`, right[2:], 401, slog.LevelWarn},
		{"another token", "PUT", `{"level":"debug"}`, append([]string{"Authorization", "Bearer x"}, right[2:]...), 401, slog.LevelWarn},
		{"a page of another site", "PUT", `{"level":"debug"}`, with("Origin", "https://example.com"), 403, slog.LevelWarn},
		{"a page of this address", "PUT", `{"level":"debug"}`, with("Sec-Fetch-Site", "same-origin"), 403, slog.LevelWarn},
		{"a page that looks", "GET", "", with("Sec-Fetch-Site", "cross-site"), 403, slog.LevelWarn},
		{"another method", "POST", `{"level":"debug"}`, right, 405, slog.LevelWarn},
		{"no type", "PUT", `{"level":"debug"}`, right[:2], 415, slog.LevelWarn},
		{"a form", "PUT", "level=debug", []string{right[0], right[1], "Content-Type", "application/x-www-form-urlencoded"}, 415, slog.LevelWarn},
		{"no level", "PUT", `{}`, right, 400, slog.LevelWarn},
		{"a strange level", "PUT", `{"level":"loud"}`, right, 400, slog.LevelWarn},
		{"a strange field", "PUT", `{"level":"debug","x":1}`, right, 400, slog.LevelWarn},
		{"two documents", "PUT", `{"level":"debug"}{"level":"info"}`, right, 400, slog.LevelWarn},
		{"too much", "PUT", `{"level":"` + strings.Repeat("x", 2000) + `"}`, right, 400, slog.LevelWarn},
		{"a look", "GET", "", right, 200, slog.LevelWarn},
		{"a change", "PUT", `{"level":"debug"}`, right, 200, slog.LevelDebug},
		{"a change back", "PUT", ` {"level": "error"} `, with("Content-Type", "application/json; charset=utf-8"), 200, slog.LevelError},
	} {
		got, said := send(t, admin, step.method, step.body, step.header)
		if got != step.status || p.Level.Level() != step.level {
			t.Errorf("%s: %d and level %v, want %d and %v; it says %s", step.what, got, p.Level.Level(), step.status, step.level, said)
		}
		if want := `{"level":"` + strings.ToLower(step.level.String()) + `"}` + "\n"; got == 200 && said != want {
			t.Errorf("%s: it says %q, want %q", step.what, said, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// send asks for the level. A header that is there twice has its last value.
func send(t *testing.T, admin net.Listener, method, body string, header []string) (status int, said string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+admin.Addr().String()+"/debug/level", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// An address that others reach has no level, and no token is made for it.
func TestNoLevelOnANetwork(t *testing.T) {
	t.Parallel()
	open, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	shell, rest := call(t), http.NewServeMux()
	got, err := withLevel(shell, nil, open, rest)
	if err != nil || got != http.Handler(rest) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(shell.Config.Data, "admin-token")); !os.IsNotExist(err) {
		t.Errorf("a token: %v", err)
	}
}
