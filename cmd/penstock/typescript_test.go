package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// documented returns the only program in a language, with this text in it, that a page
// of the documentation has.
func documented(t *testing.T, page, language, text string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", page))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, rest := range strings.Split(string(content), "```"+language+"\n")[1:] {
		program, _, closed := strings.Cut(rest, "```\n")
		if closed && strings.Contains(program, text) {
			found = append(found, program)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d programs in %s with %q, want one", page, len(found), language, text)
	}
	return found[0]
}

// execute runs a client's program with a role's credential, until it ends, and returns
// what it prints.
func (f *fixture) execute(interpreter, script, program string, role jobs.Role, arg string) string {
	f.Helper()
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	creds := filepath.Join(f.TempDir(), "program.creds")
	f.run("nats", "credentials", string(role), "--name", "program", "--file", creds)
	f.must(os.WriteFile(script, []byte(program), 0o644))
	f.Cleanup(func() { _ = os.Remove(script) })
	ctx, cancel := context.WithTimeout(f.Context(), slowtest.Limit(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, script, creds, arg)
	cmd.Env = append(os.Environ(), "URL="+endpoint.URL)
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.Fatalf("%s: %v\n%s", interpreter, err, out)
	}
	return string(out)
}

// The TypeScript program of the documentation submits a job, follows it, answers its
// question, and reads its result and its patch, with a submitter's credential and requests alone.
func TestAClientInTypeScript(t *testing.T) {
	t.Parallel()
	program := documented(t, "clients-nats.md", "ts", "")
	modules := nodeModules(t)
	tsx, err := exec.LookPath("tsx")
	if err != nil {
		skip(t, "tsx", "no tsx, which runs TypeScript: npm install tsx, and put its node_modules/.bin on PATH")
	}
	f := newFixture(t)
	f.serve("--slots", "1")
	got := f.execute(tsx, filepath.Join(modules, "client-"+jobs.NewID()+".mts"), program, jobs.RoleSubmitter, f.repo)
	id := strings.TrimSpace(f.run("job", "ls", "-o", "id"))
	var want strings.Builder
	for _, e := range f.events(id) {
		want.WriteString(strconv.FormatUint(e.Seq, 10) + " " + string(e.Kind) + "\n")
	}
	want.WriteString("success")
	if !strings.HasPrefix(got, want.String()) || !strings.Contains(got, "\n+Red\n") || !strings.HasSuffix(got, "cancel: finished\n") {
		t.Errorf("the program has printed\n%s\nwant\n%s, a patch, and that a finished job is not cancelled", got, want.String())
	}
}
