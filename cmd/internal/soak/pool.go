package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs/freeport"
)

// A pool is the programs that are soaked, and what they work on.
type pool struct {
	program, dir, data, repo string
	env                      []string
	log                      *os.File
	hooks                    *httptest.Server
	serve, steady, victim    *measure.Process

	jobs, lost, faults, delivered, refused atomic.Int64
	fired                                  int64 // of the schedule, among the jobs that are kept

	mu    sync.Mutex
	wrong []error
	pids  []int // of all programs that were started
}

// complain notes what must not be, so that the soak fails when it has ended.
func (p *pool) complain(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, err)
}

// counts are what was done.
type counts struct{ jobs, lost, fired, delivered, refused, faults int64 }

func (p *pool) counts() counts {
	return counts{p.jobs.Load(), p.lost.Load(), p.fired, p.delivered.Load(), p.refused.Load(), p.faults.Load()}
}

// kept is how long the pool keeps what is over: as short as the settings allow.
const kept = "1h"

// newPool makes the repository and the receiver of webhooks; nothing is started.
func newPool(ctx context.Context, o options) (*pool, error) {
	log, err := os.Create(filepath.Join(o.dir, "log"))
	if err != nil {
		return nil, err
	}
	p := &pool{program: o.program, dir: o.dir, data: filepath.Join(o.dir, "data"), repo: filepath.Join(o.dir, "repo"), log: log}
	p.env = append(os.Environ(), "PENSTOCK_DATA="+p.data, "PENSTOCK_LEASE=5s", "PENSTOCK_WORKER_CACHE=16MiB", "PENSTOCK_RETENTION_EVENTS_BYTES=8MiB", "PENSTOCK_WEBHOOKS_ALLOW_PRIVATE=127.0.0.0/8",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	for _, what := range []string{"JOBS", "EVENTS", "RESULTS", "ARTIFACTS", "DEAD_LETTERS", "AUDIT"} {
		p.env = append(p.env, "PENSTOCK_RETENTION_"+what+"="+kept)
	}
	var received atomic.Int64
	p.hooks = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what is sent is tested elsewhere
		if received.Add(1)%7 == 0 {
			p.refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		p.delivered.Add(1)
	}))
	if err := p.git(ctx, "init", "-q", "-b", "main", p.repo); err != nil {
		return nil, err
	}
	return p, p.commit(ctx, 0)
}

// commit moves the repository on by random content that no cache can share.
func (p *pool) commit(ctx context.Context, n int) error {
	for i := range 20 {
		text := bytes.Repeat(fmt.Appendf(nil, "file %d of commit %d at %d\n", i, n, time.Now().UnixNano()), 500)
		if err := os.WriteFile(filepath.Join(p.repo, fmt.Sprintf("file%d.txt", i)), text, 0o644); err != nil {
			return err
		}
	}
	if err := p.git(ctx, "-C", p.repo, "add", "-A"); err != nil {
		return err
	}
	return p.git(ctx, "-C", p.repo, "-c", "user.name=soak", "-c", "user.email=soak@example.com", "commit", "-qm", fmt.Sprint("commit ", n))
}

func (p *pool) git(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = p.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %v: %w: %s", args, err, out)
	}
	return nil
}

// start starts a program and waits until it is ready.
func (p *pool) start(ctx context.Context, args ...string) (*measure.Process, error) {
	cmd := exec.Command(p.program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, p.log, p.log
	started, err := measure.Start(ctx, cmd)
	if cmd.Process != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pids = append(p.pids, cmd.Process.Pid)
	}
	return started, err
}

// started are the programs that were started, those that have ended too.
func (p *pool) started() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pids)
}

// up starts all programs.
func (p *pool) up(ctx context.Context) (err error) {
	broker, err := freeport.Address()
	if err != nil {
		return err
	}
	if p.serve, err = p.start(ctx, "serve", "--listen", broker, "--http", "127.0.0.1:0"); err != nil {
		return err
	}
	if p.steady, err = p.worker(ctx, "steady"); err != nil {
		return err
	}
	p.victim, err = p.worker(ctx, "victim")
	return err
}

func (p *pool) worker(ctx context.Context, name string) (*measure.Process, error) {
	return p.start(ctx, "worker", "--name", name, "--slots", "3", "--drain", "20s")
}

// down ends all programs by a signal, the workers first.
func (p *pool) down(s syscall.Signal) error {
	var errs []error
	for _, r := range []*measure.Process{p.steady, p.victim, p.serve} {
		errs = append(errs, r.End(s, time.Minute))
	}
	p.serve, p.steady, p.victim = nil, nil, nil
	return errors.Join(errs...)
}

func (p *pool) close() {
	_ = p.down(syscall.SIGKILL) // what runs still belongs to a soak that has failed
	p.hooks.Close()
	_ = p.log.Close()
}

// ask runs a command of the program to its end and returns what it prints.
func (p *pool) ask(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Env, cmd.Stderr = p.env, p.log
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("penstock %s: %w", strings.Join(args[:min(2, len(args))], " "), err)
	}
	return string(out), err
}

// complaints are what must be an error even if nothing grows.
func (p *pool) complaints() []error {
	p.mu.Lock()
	all := slices.Clone(p.wrong)
	p.mu.Unlock()
	if n := p.lost.Load(); n > 0 {
		all = append(all, fmt.Errorf("%d jobs have no result", n))
	}
	if p.fired == 0 || p.delivered.Load() == 0 || p.faults.Load() == 0 {
		all = append(all, fmt.Errorf("the soak shows nothing of cron, webhooks or faults: %+v", p.counts()))
	}
	return all
}
