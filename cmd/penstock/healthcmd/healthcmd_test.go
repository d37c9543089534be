package healthcmd

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The command succeeds for an address that answers 200 itself, and for no other.
func TestHealth(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/draining", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("[-] drain: it drains\n"))
	})
	mux.Handle("/elsewhere", http.RedirectHandler("/readyz", http.StatusFound))
	server := httptest.NewServer(mux)
	defer server.Close()
	gone := httptest.NewServer(mux)
	gone.Close()
	for _, tt := range []struct {
		address string
		code    int
		says    string
	}{
		{server.URL + "/readyz", cli.ExitOK, "ok"},
		{server.URL + "/draining", cli.ExitUnexpected, "[-] drain: it drains"},
		{server.URL + "/elsewhere", cli.ExitUnexpected, "302"},
		{server.URL + "/nothing", cli.ExitUnexpected, "404"},
		{gone.URL + "/readyz", cli.ExitUnreachable, "refused"},
		{"127.0.0.1:9090", cli.ExitUsage, "not an http:// address"},
		{"https://127.0.0.1:9090/readyz", cli.ExitUsage, "not an http:// address"},
	} {
		var out bytes.Buffer
		w := console.New(&out, os.Getenv)
		cmd := New(cli.Shell{Out: w, Err: w})
		cmd.SetArgs([]string{tt.address})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		code := cli.Report(w, err)
		if code != tt.code || !strings.Contains(out.String(), tt.says) {
			t.Errorf("health %s: exit code %d, %q; want %d, %q", tt.address, code, out.String(), tt.code, tt.says)
		}
	}
}
