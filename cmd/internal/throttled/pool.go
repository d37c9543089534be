package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
)

// idle is the idle timeout of the jobs. Their calls wait for up to half of it; one that would wait for longer parks.
const idle = 2 * time.Minute

// agentModel is the model that all agents call.
const agentModel = "claude-opus-5"

// A pool is the programs of a run, and the API that their agents call.
type pool struct {
	options
	api        *api
	upstream   *httptest.Server
	data, repo string
	env        []string
	log        *os.File
	server     *measure.Server
	started    []*measure.Process // the workers
}

// begin starts the API, the server and the workers.
func begin(ctx context.Context, o options, a *api) (p *pool, err error) {
	p = &pool{options: o, api: a, upstream: httptest.NewServer(a.model()), data: filepath.Join(o.dir, "data"), repo: filepath.Join(o.dir, "repo")}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.log, err = os.Create(filepath.Join(o.dir, "log")); err != nil {
		return p, err
	}
	p.env = append(os.Environ(), "PENSTOCK_DATA="+p.data, "PENSTOCK_LEASE=30s", "ANTHROPIC_API_KEY=sk-throttled", "PENSTOCK_MODEL_ANTHROPIC_URL="+p.upstream.URL,
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", p.repo},
		{"-C", p.repo, "-c", "user.name=throttled", "-c", "user.email=throttled@example.com", "commit", "-q", "--allow-empty", "-m", "base"},
	} {
		git := exec.CommandContext(ctx, "git", args...)
		git.Env = p.env
		if out, err := git.CombinedOutput(); err != nil {
			return p, fmt.Errorf("git %v: %w: %s", args, err, out)
		}
	}
	if p.server, err = measure.Serve(ctx, p.command("serve", "--slots", "0"), p.data, "throttled"); err != nil {
		return p, err
	}
	for n := range o.workers {
		w, err := measure.Start(ctx, p.command("worker", "--name", fmt.Sprint("w", n+1), "--slots", strconv.Itoa((o.agents+o.workers-1)/o.workers), "--drain", "1s"))
		p.started = append(p.started, w)
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// command is the program with arguments.
func (p *pool) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, p.log, p.log
	return cmd
}

// submitAll submits all jobs, with the real agents spread evenly among the others.
func (p *pool) submitAll(ctx context.Context) error {
	for n := range p.agents {
		claude := (n+1)*p.real/p.agents > n*p.real/p.agents
		if _, err := p.server.Client.Submit(ctx, p.job(n, claude)); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(p.stagger):
		}
	}
	return nil
}

// script makes its calls one after the other, until the answer is that it is done. A refusal is waited for as it asks.
const script = `n=0
until grep -q '"done"' answer 2>/dev/null; do
	n=$((n + 1))
	curl -sSf -m 300 --retry 20 -o answer -H "x-api-key: $ANTHROPIC_API_KEY" \
		-d '{"model":"MODEL","max_tokens":1000,"messages":[{"role":"user","content":"PROMPT"}]}' "$ANTHROPIC_BASE_URL/v1/messages" || exit 1
	echo "call $n"
done`

// digits is how many an agent's number has.
const digits = 4

// name is the number of an agent.
func name(n int) string { return fmt.Sprintf("%0*d", digits, n) }

func (p *pool) job(n int, claude bool) jobs.Job {
	job := jobs.Job{
		Item: name(n), Prompt: named + name(n) + ": call the tool as often as you are told.", IdleTimeout: jobs.Duration(idle), Timeout: jobs.Duration(4*p.last + 4*p.quota + time.Hour),
		Repo: jobs.Repo{URL: p.repo}, Agent: jobs.Agent{Name: "claude", Model: agentModel}, Retry: jobs.Retry{MaxAttempts: 3},
	}
	if !claude {
		words := strings.NewReplacer("PROMPT", named+name(n), "MODEL", agentModel)
		job.Agent = jobs.Agent{Name: scripted, Model: agentModel, Command: []string{"sh", "-c", words.Replace(script)}}
	}
	return job
}

// scripted is the agent of the jobs that are compared with each other.
const scripted = "command"

// close ends the workers and then the server.
func (p *pool) close() error {
	var wrong []error
	for _, w := range p.started {
		wrong = append(wrong, w.End(syscall.SIGTERM, time.Minute))
	}
	wrong = append(wrong, p.server.Close())
	p.upstream.Close()
	if p.log != nil {
		wrong = append(wrong, p.log.Close())
	}
	return errors.Join(wrong...)
}
