package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/jobstest"
)

// foreignProgram is the program of a person who has this module and its documentation.
const foreignProgram = `package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
)

func main() {
	ctx := context.Background()
	nc := must(nats.Connect(os.Args[1]))
	defer nc.Close()
	pool := must(client.Open(ctx, nc, client.Config{By: "foreign"}))
	job := jobs.Job{Agent: jobs.Agent{Name: "command", Command: []string{"true"}}, Isolation: jobs.IsolationNone, Repo: jobs.Repo{URL: "/src/app"}}
	made := must(pool.Submit(ctx, job))
	_, err := pool.Send(ctx, made.ID, control.Message{Verb: control.Answer, Options: []string{"1"}})
	fmt.Println("answer:", jobs.Code(err))
	must(pool.Cancel(ctx, made.ID))
	for event, err := range pool.Follow(ctx, made.ID, 0) {
		if err != nil {
			panic(err)
		}
		fmt.Println(event.Seq, event.Kind)
	}
	patch := must(pool.Patch(ctx, made.ID))
	fmt.Println("patch:", len(must(io.ReadAll(patch))), "result:", must(pool.Wait(ctx, made.ID)).Outcome)
	_, err = pool.Cancel(ctx, made.ID)
	fmt.Println("again:", errors.Is(err, jobs.ErrFinished))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
`

// A module outside of this repository submits, sends an answer, cancels, follows and
// reads a patch, with the client alone.
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
	for name, content := range map[string]string{"go.mod": mod, "go.sum": string(sums), "main.go": foreignProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(jobstest.Context(t), "go", "run", "-trimpath", ".", nc.ConnectedUrl())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	want := "answer: not_ready\n1 job.submitted\n2 job.finished\npatch: 0 result: cancellation\nagain: true\n"
	if err != nil || string(out) != want {
		t.Errorf("the foreign program: %v\n%s\nwant\n%s", err, out, want)
	}
}
