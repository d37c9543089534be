package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The documentation is served on this host alone until the command is interrupted.
func TestDocsAreServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cmd := f.command("docs")
	out, err := cmd.StdoutPipe()
	f.must(err)
	f.must(cmd.Start())
	line := make([]byte, len("http://127.0.0.1:65535/\n"))
	n, err := out.Read(line)
	f.must(err)
	address := strings.TrimSpace(string(line[:n]))
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("it is served at %q", address)
	}
	ask, done := context.WithTimeout(t.Context(), 30*time.Second)
	defer done()
	request, err := http.NewRequestWithContext(ask, http.MethodGet, address+"reference/cli/docs.html", nil)
	f.must(err)
	answer, err := http.DefaultClient.Do(request)
	f.must(err)
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || !bytes.Contains(body, []byte("penstock docs --write site")) {
		t.Errorf("the page is %d %.300q, %v", answer.StatusCode, body, err)
	}
	f.must(cmd.Process.Signal(os.Interrupt))
	f.must(cmd.Wait())
}

// The manual has a page for each command that help shows, the same each time it is made for
// one release, and groff finds nothing wrong in it.
func TestTheManual(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var made [2]string
	for i := range made {
		made[i] = t.TempDir()
		cmd := f.command("docs", "--man", made[i])
		cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=1700000000")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	pages, err := filepath.Glob(made[0] + "/*")
	f.must(err)
	if len(pages) < 100 {
		t.Errorf("got %d pages", len(pages))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		f.must(err)
		again, err := os.ReadFile(filepath.Join(made[1], filepath.Base(page)))
		if err != nil || !bytes.Equal(text, again) || !bytes.Contains(text, []byte(`"2023-11-14"`)) {
			t.Errorf("%s is another one when it is made again (%v):\n%.200s", filepath.Base(page), err, text)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		skip(t, "groff", "no groff in PATH")
	}
	check := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-ww", "-z", "-Tutf8"}, pages...)...)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}
