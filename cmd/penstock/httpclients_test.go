package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// nodeProgram finds a program of an npm package, and the node_modules that it is in.
func nodeProgram(t *testing.T, pkg, name string) (program, modules string) {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("NODE_PATH")) {
		program = filepath.Join(dir, ".bin", name)
		if _, err := os.Stat(program); err == nil {
			return program, dir
		}
	}
	skip(t, "node", "no %s: npm install %s, and set NODE_PATH to its node_modules", name, pkg)
	return "", ""
}

// A linter that others wrote has nothing to say about the document of the HTTP API.
func TestTheOpenAPIDocumentIsLinted(t *testing.T) {
	t.Parallel()
	redocly, _ := nodeProgram(t, "@redocly/cli", "redocly")
	f := newFixture(t)
	file := filepath.Join(t.TempDir(), "openapi.json")
	f.must(os.WriteFile(file, []byte(f.run("schema", "openapi")), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), slowtest.Limit(2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, redocly, "lint", "--extends", "recommended", "--max-problems", "100", file)
	cmd.Env = append(os.Environ(), "CI=true", "NO_COLOR=1", "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	if said, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(said), "You have") {
		t.Errorf("the linter says\n%s%v", said, err)
	}
}

// The programs of the page about clients submit a job over HTTP, follow it, answer its
// question, and read its patch. The one in Rust is compiled first. The one in TypeScript has a
// client that a generator makes of the document; another program with that client is told
// what is refused.
func TestDocumentedClients(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serveHTTP("--slots", "2")
	for language, interpreter := range map[string][]string{"sh": {"sh", "-eu"}, "python": {"python3"}, "ts": {"tsx"}, "rust": {"rustc", "--edition", "2021", "-o", "main"}} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{interpreter[0], "curl", "jq"} {
				if _, err := exec.LookPath(program); err != nil {
					skip(t, program, "no %s in PATH", program)
				}
			}
			c := &httpClient{T: t, dir: t.TempDir(), address: address, repo: f.repo, token: f.httpToken()}
			if language == "ts" {
				c.generate(f.run("schema", "openapi"))
			}
			got := c.execute(interpreter, documented(t, "clients.md", language, "color-"))
			if language == "rust" { // which was only compiled
				got = c.run(filepath.Join(c.dir, "main"))
			}
			for _, want := range []string{"job.submitted\n", "ask.opened\n", "job.finished\n", "\nsuccess", "\n+Red\n", "finished\n"} {
				if !strings.Contains(got, want) {
					t.Errorf("the program has printed\n%s\nwant %q in it", got, want)
				}
			}
			if language != "ts" {
				return
			}
			if got := c.execute(interpreter, refusedSubmit); got != "finished\ninvalid promt\n" {
				t.Errorf("the other program has printed\n%s", got)
			}
		})
	}
}

const refusedSubmit = `
import { client } from './client/client.gen';
import { submit } from './client';

client.setConfig({ baseUrl: process.env.SERVER, auth: () => process.env.TOKEN });
const job = { prompt: 'x', repo: { url: process.env.REPO! }, agent: { command: ['true'] } };
const made = await submit({ body: job, query: { wait: '1m' }, throwOnError: true });
console.log(made.data.record?.state);
const { error } = await submit({ body: { promt: 'x' } as any });
console.log((error as any).code, (error as any).fields?.[0].field);
`

func (f *fixture) httpToken() string {
	f.Helper()
	token, err := httpapi.OpenToken(f.data)
	f.must(err)
	return token
}

// An httpClient is a program of another language that speaks HTTP with a pool.
type httpClient struct {
	*testing.T
	dir, address, repo, token string
}

// generate makes the client in TypeScript of the document of the HTTP API.
func (c *httpClient) generate(document string) {
	c.Helper()
	generator, modules := nodeProgram(c.T, "@hey-api/openapi-ts", "openapi-ts")
	for name, content := range map[string]string{"openapi.json": document, "package.json": `{"type": "module"}`} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o644); err != nil {
			c.Fatal(err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(c.dir, "node_modules")); err != nil {
		c.Fatal(err)
	}
	c.run(generator, "--input", "openapi.json", "--output", "client", "--silent")
}

// execute runs a program and returns what it prints.
func (c *httpClient) execute(interpreter []string, program string) string {
	c.Helper()
	script := filepath.Join(c.dir, "main.mts") // other interpreters do not mind the name
	if err := os.WriteFile(script, []byte(program), 0o644); err != nil {
		c.Fatal(err)
	}
	return c.run(interpreter[0], append(interpreter[1:], script)...)
}

// run runs a command with what the page about clients tells to set.
func (c *httpClient) run(program string, args ...string) string {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), slowtest.Limit(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "CI=true", "NO_COLOR=1", "SERVER=http://"+c.address, "API=http://"+c.address+"/v1", "TOKEN="+c.token, "REPO="+c.repo)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.Fatalf("%s %v: %v\n%s", filepath.Base(program), args, err, out)
	}
	return string(out)
}
