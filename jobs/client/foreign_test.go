package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

// foreignProgram returns the program of the documentation.
func foreignProgram(t *testing.T, root string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(page), "```go\n")
	program, _, closed := strings.Cut(program, "```\n")
	if !found || !closed {
		t.Fatal("docs/how-to/clients.md has no program in Go")
	}
	return program
}

// A module outside of this repository submits, sends an answer, cancels, follows and
// reads a patch, with the client alone and as the documentation prints it.
func TestAForeignModule(t *testing.T) {
	t.Parallel()
	_, nc := serve(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// The same requirements, so that nothing has to be looked up.
	mod := strings.Replace(string(own), "module github.com/penstock-run/penstock", "module example.org/foreign", 1) +
		"\nrequire github.com/penstock-run/penstock v0.0.0\n\nreplace github.com/penstock-run/penstock => " + root + "\n"
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": mod, "go.sum": string(sums), "main.go": foreignProgram(t, root)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(jobstest.Context(t), "go", "run", ".", nc.ConnectedUrl())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	want := "answer: not_ready\n1 job.submitted\n2 job.finished\npatch: 0 bytes\nresult: cancellation\nagain: true\n"
	if err != nil || string(out) != want {
		t.Errorf("the foreign program: %v\n%s\nwant\n%s", err, out, want)
	}
}
