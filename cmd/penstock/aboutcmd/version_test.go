package aboutcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
)

// call runs the command version of a build.
func call(version string, format cli.Format, args ...string) (string, error) {
	var out bytes.Buffer
	w := console.New(&out, func(string) string { return "" })
	cmd := NewVersion(cli.Shell{Out: w, Err: w, Format: &format}, Build{
		Version: version, Commit: "0123abc", Date: "2026-11-24T00:00:00Z", Modules: []Module{{"example.com/m", "v1.2.3"}},
	})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := errors.Join(cmd.Execute(), w.Close())
	return out.String(), err
}

// feed serves one answer, and counts the requests.
func feed(t *testing.T, status int, answer string) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

const release020 = `{"tag_name":"v0.2.0","html_url":"https://example.com/v0.2.0","body":"notes"}`

func TestVersionSaysHowItWasBuilt(t *testing.T) {
	t.Parallel()
	url, asked := feed(t, http.StatusOK, release020)
	got, err := call("v0.1.0", cli.JSON, "--feed", url)
	var b Build
	if err := errors.Join(err, json.Unmarshal([]byte(got), &b)); err != nil {
		t.Fatal(err)
	}
	if b.Commit != "0123abc" || b.Date == "" || !strings.HasPrefix(b.Go, "go1.") || len(b.Modules) != 1 || b.Newest != nil {
		t.Errorf("version says %+v", b)
	}
	if line, err := call("v0.1.0", cli.Table); err != nil || !strings.HasPrefix(line, "penstock v0.1.0 (go1.") || !strings.Contains(line, "commit 0123abc 2026-11-24") {
		t.Errorf("version says %q, %v", line, err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("without --check it asked %d times", n)
	}
}

func TestVersionCheck(t *testing.T) {
	t.Parallel()
	url, _ := feed(t, http.StatusOK, release020)
	for ours, want := range map[string]string{
		"v0.1.0":               "v0.2.0 is newer: https://example.com/v0.2.0",
		"0.1.0":                "v0.2.0 is newer",
		"v0.1.0-7-g0123abc":    "v0.2.0 is newer",
		"v0.2.0-rc.1":          "v0.2.0 is newer",
		"v0.2.0":               "the newest release is v0.2.0\n",
		"v0.2.0-7-g0123-dirty": "the newest release is v0.2.0\n",
		"v0.3.0":               "the newest release is v0.2.0\n",
		"0123abc":              "cannot be compared",
		"1234567":              "cannot be compared", // a commit, all of digits
		"devel":                "cannot be compared",
	} {
		if got, err := call(ours, cli.Table, "--check", "--feed", url); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q", ours, got, err, want)
		}
	}
}

// What a feed answers is text of others, or is missing.
func TestVersionCheckFails(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if _, err := call("v0.1.0", cli.Table, "--check", "--feed", gone.URL); cli.Code(err) != cli.ExitUnreachable {
		t.Errorf("offline: %v, want exit code %d", err, cli.ExitUnreachable)
	}
	for _, c := range []struct {
		status int
		answer string
		code   int
	}{
		{http.StatusNotFound, "{}", cli.ExitNotFound},
		{http.StatusForbidden, "{}", cli.ExitUnreachable},
		{http.StatusOK, "<html>", cli.ExitUnreachable},
		{http.StatusOK, `{"tag_name":"v9\u001b[2J"}`, cli.ExitUnreachable},
		{http.StatusOK, `{"body":"` + strings.Repeat("x", answerLimit) + `","tag_name":"v9.0.0"}`, cli.ExitUnreachable},
	} {
		url, _ := feed(t, c.status, c.answer)
		if got, err := call("v0.1.0", cli.Table, "--check", "--feed", url); cli.Code(err) != c.code || got != "" {
			t.Errorf("answer %d %.20q: %q, %v; want exit code %d", c.status, c.answer, got, err, c.code)
		}
	}
	url, _ := feed(t, http.StatusOK, `{"tag_name":"v9.0.0","html_url":"https://example.com/\u001b[2J"}`)
	if got, err := call("v0.1.0", cli.Table, "--check", "--feed", url); err != nil || strings.Contains(got, "\x1b") {
		t.Errorf("an address that a terminal acts on: %q, %v", got, err)
	}
}
