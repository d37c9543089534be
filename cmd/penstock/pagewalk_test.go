package main

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// Whoever follows a page of the documentation sees what it shows. The README and tutorials
// begin with nothing; other pages have a repository as the current directory, and a pool.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// What Claude Code is asked for on these pages is to correct the spelling.
	model := httptest.NewServer(agenttest.New(agenttest.Script{Steps: []agenttest.Step{
		agenttest.Use("Bash", map[string]any{"command": "sed -i s/T.h/The/ README.md", "description": "correct the spelling"}),
		agenttest.Say("It says The now."),
	}}))
	t.Cleanup(model.Close)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	pulls, _ := f.github()
	forge := t.TempDir()
	f.env = append(f.env, "FORGE="+f.gitServer(forge), "FORGE_DIR="+forge, "PENSTOCK_LEASE="+slowtest.Pace(4*time.Second).String(), fmt.Sprintf("PENSTOCK_SERVE_HTTP=127.0.0.1:%d", jobstest.FreePort(t)), "PENSTOCK_WEBHOOKS_ALLOW_PRIVATE=127.0.0.0/8",
		"ANTHROPIC_API_KEY=sk-ant-"+rand.Text(), "PENSTOCK_MODEL_ANTHROPIC_URL="+model.URL, "RECEIVER="+receiver.URL, "PULLS="+pulls.Repository("o/r"))
	f.serve("--slots", "3")
	for _, page := range pages(t) {
		t.Run(strings.TrimSuffix(page, ".md"), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", page))
			if err != nil {
				t.Fatal(err)
			}
			blocks := pageCommands(t, string(text))
			if len(blocks) == 0 {
				return
			}
			t.Parallel()
			walk := &walk{fixture: f, T: t, dir: t.TempDir(), printed: t.TempDir()}
			alone := page == "README.md" || strings.HasPrefix(page, "docs/tutorials/")
			if alone {
				walk.Cleanup(func() { walk.removable(filepath.Join(walk.dir, ".local", "state", "penstock")) })
			}
			walk.through(blocks, !alone)
		})
	}
}

// gitServer serves the repositories in a directory over HTTPS, with the certificate in
// ca.pem there.
func (f *fixture) gitServer(dir string) (address string) {
	f.Helper()
	git, err := exec.LookPath("git")
	f.must(err)
	server := httptest.NewTLSServer(&cgi.Handler{Path: git, Args: []string{"http-backend"}, InheritEnv: []string{"PATH"}, Env: []string{
		"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}})
	f.Cleanup(server.Close)
	f.must(os.WriteFile(filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return server.URL
}

// A walk follows one page.
type walk struct {
	*fixture
	*testing.T
	dir, printed string
}

const guideBegins = `
mkdir app && cd app && git init -q && printf 'Teh first line\n' >README.md && git add . && git commit -qm 'Say hello'
`

func (w *walk) through(blocks []pageBlock, guide bool) {
	w.Helper()
	var script pageScript
	// What a page starts is told to end and awaited, workers before their pools.
	script.WriteString("set -eu\nend() { for p in $(jobs -p | sed '1!G;h;$!d'); do kill $p 2>/dev/null || true; wait $p || true; done; }\ntrap end EXIT\n")
	if guide {
		script.WriteString(guideBegins)
	}
	for i, b := range blocks {
		if b.has("file") || b.language == "sh" {
			script.add(i, b)
		}
		if program, found := b.directive("needs"); found {
			w.needs(program)
		}
	}
	for _, program := range []string{"bash", "curl", "jq", "openssl"} {
		if program == "bash" || strings.Contains(script.String(), program+" ") {
			w.needs(program)
		}
	}
	ctx, cancel := context.WithTimeout(w.T.Context(), slowtest.Limit(2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = slowtest.Limit(20 * time.Second)
	cmd.Dir, cmd.Env = w.dir, w.environment(guide)
	w.must(os.WriteFile(filepath.Join(w.dir, ".gitconfig"), []byte("[user]\n\tname = Ann\n\temail = ann@example.com\n"), 0o600))
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.T.Errorf("%v\n%s", err, out)
	}
	w.printedAsShown(blocks)
}

func (w *walk) needs(program string) {
	w.Helper()
	if _, err := exec.LookPath(program); err != nil {
		skip(w.T, program, "no %s in PATH", program)
	}
}

// printedAsShown compares what the commands have printed with what the page shows.
func (w *walk) printedAsShown(blocks []pageBlock) {
	w.Helper()
	for i, b := range blocks {
		if b.has("file") || b.language != "sh" {
			continue
		}
		printed, err := os.ReadFile(filepath.Join(w.printed, fmt.Sprint(i)))
		if err != nil {
			w.T.Fatalf("the walk did not reach\n%s", b.text)
		}
		w.T.Logf("%s\n%s", b.text, printed)
		if i+1 == len(blocks) || blocks[i+1].language != "text" || blocks[i+1].has("file") {
			continue
		}
		for line := range strings.Lines(blocks[i+1].text) {
			if line := strings.TrimSpace(line); !like(line).Match(printed) {
				w.T.Errorf("it does not print %q", line)
			}
		}
	}
}

// environment is that of a person who has set nothing, with free ports and short waits.
func (w *walk) environment(guide bool) []string {
	env := slices.DeleteFunc(w.command("version").Env, func(kv string) bool {
		return strings.HasPrefix(kv, "HOME=") || strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "PENSTOCK_DATA=") ||
			strings.HasPrefix(kv, "PENSTOCK_SERVE_")
	})
	if guide {
		env = append(env, "PENSTOCK_DATA="+w.data)
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	w.must(err)
	free := func() string { return fmt.Sprintf("127.0.0.1:%d", jobstest.FreePort(w.T)) }
	return append(env, "HOME="+w.dir, "PRINTED="+w.printed, "ISSUES=8", "SOURCE="+source, "PENSTOCK_SERVE_LISTEN="+free(),
		"PENSTOCK_SERVE_HTTP="+free(), "PENSTOCK_SERVE_ADMIN="+free(), "PENSTOCK_WORKER_ADMIN=127.0.0.1:0", "PENSTOCK_WORKER_DRAIN=1s")
}
