package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
)

// A pool is the server and the workers of a run.
type pool struct {
	options
	data   string
	log    *os.File
	server *measure.Server
	hosts  []*host

	submitted, settled, running, failed atomic.Int64
	room                                chan struct{} // has a value for each job that may be submitted
	all                                 chan struct{} // closed when as many jobs have settled as there are
}

// A host is a process with some of the workers.
type host struct {
	cmd   *exec.Cmd
	input io.Closer
	ended chan error
	told  report // the last one
}

// A report is what a process with workers says now and then: how many jobs it has settled, how many
// it has now, and how many attempts ended with an error.
type report struct{ settled, running, failed int64 }

// begin starts the server, then the workers, and waits until all of these are there.
func begin(ctx context.Context, o options) (p *pool, err error) {
	p = &pool{options: o, data: filepath.Join(o.dir, "data"), room: make(chan struct{}, o.open), all: make(chan struct{})}
	for range o.open {
		p.room <- struct{}{}
	}
	if p.log, err = os.Create(filepath.Join(o.dir, "log")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	serve := exec.Command(o.program, "serve", "--slots", "0")
	serve.Env = append(os.Environ(), "PENSTOCK_DATA="+p.data, "PENSTOCK_LEASE="+o.lease.String())
	serve.Stdout, serve.Stderr = p.log, p.log
	if p.server, err = measure.Serve(ctx, serve, p.data, "fleet"); err != nil {
		return p, err
	}
	for first := 0; first < o.workers; first += o.host {
		if err := p.addHost(first, min(o.host, o.workers-first)); err != nil {
			return p, err
		}
	}
	return p, p.allPresent(ctx)
}

// addHost starts a process with so many workers. It ends when this one does, since its
// input ends then.
func (p *pool) addHost(first, workers int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h := &host{ended: make(chan error, 1)}
	h.cmd = exec.Command(self, "-of", p.data, "-first", strconv.Itoa(first), "-workers", strconv.Itoa(workers), "-slots", strconv.Itoa(p.slots),
		"-work", p.script.work.String(), "-slower", p.script.slower.String(), "-lease", p.lease.String())
	h.cmd.Stderr = p.log
	if h.input, err = h.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := h.cmd.Start(); err != nil {
		return err
	}
	p.hosts = append(p.hosts, h)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.hear(h, lines.Text())
		}
		h.ended <- h.cmd.Wait()
	}()
	return nil
}

// hear takes a report. Each job that has settled makes room for one.
func (p *pool) hear(h *host, line string) {
	var now report
	if _, err := fmt.Sscan(line, &now.settled, &now.running, &now.failed); err != nil {
		fmt.Fprintln(p.log, "fleet: a process with workers says", line)
		return
	}
	more := now.settled - h.told.settled
	p.running.Add(now.running - h.told.running)
	p.failed.Add(now.failed - h.told.failed)
	h.told = now
	for range more {
		select {
		case p.room <- struct{}{}:
		default: // more have settled than were submitted: check tells
		}
	}
	if before := p.settled.Add(more) - more; before < int64(p.jobs) && before+more >= int64(p.jobs) {
		close(p.all)
	}
}

// allPresent waits until the pool knows all workers.
func (p *pool) allPresent(ctx context.Context) error {
	for range 1200 {
		list, err := p.server.Client.Workers(ctx)
		if err == nil && len(list) == p.workers {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("not all of the %d workers are there after two minutes", p.workers)
}

// submitAll submits all jobs. An error ends the others, too.
func (p *pool) submitAll(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var clients sync.WaitGroup
	for range p.clients {
		clients.Go(func() {
			for n := range next {
				if err := p.submit(ctx, n); err != nil {
					stop(fmt.Errorf("submit: %w", err))
				}
			}
		})
	}
	for n := range p.jobs {
		select {
		case <-p.room:
			next <- n
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	clients.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (p *pool) submit(ctx context.Context, n int) error {
	job := jobs.Job{Prompt: "job " + strconv.Itoa(n), Isolation: jobs.IsolationNone, Agent: jobs.Agent{Name: "command", Command: []string{"true"}}}
	if _, err := p.server.Client.Submit(ctx, job); err != nil {
		return err
	}
	p.submitted.Add(1)
	return nil
}

// stuck is how long no job may settle until a run counts as stuck, beyond what a job takes.
const stuck = 2 * time.Minute

// allSettled waits until the workers have settled all jobs.
func (p *pool) allSettled(ctx context.Context) error {
	longest := stuck + p.script.work + time.Duration(p.jobs)*p.script.slower + p.lease
	for before := int64(-1); ; {
		select {
		case <-p.all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(longest):
		}
		now := p.settled.Load()
		if now == before {
			return fmt.Errorf("%d of %d jobs have settled, and none in the last %v", now, p.jobs, longest)
		}
		before = now
	}
}

// check asks the pool what has become of the jobs.
func (p *pool) check(ctx context.Context) error {
	var wrong []error
	if n := p.settled.Load(); n != int64(p.jobs) {
		wrong = append(wrong, fmt.Errorf("%d jobs were settled, of %d", n, p.jobs))
	}
	for range 600 { // the leader's index hears of an end a moment later
		finished := 0
		for q, err := range p.server.Client.Queues().List(ctx) {
			if err != nil {
				return errors.Join(append(wrong, err)...)
			}
			finished += q.Finished
		}
		if finished == p.jobs {
			return errors.Join(wrong...)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.Join(append(wrong, fmt.Errorf("the pool does not have %d finished jobs a minute later", p.jobs))...)
}

// close ends the workers and then the server.
func (p *pool) close() error {
	var wrong []error
	for _, h := range p.hosts {
		_ = h.input.Close()
	}
	for _, h := range p.hosts {
		select {
		case err := <-h.ended:
			wrong = append(wrong, err)
		case <-time.After(time.Minute):
			_ = h.cmd.Process.Kill()
			wrong = append(wrong, errors.New("a process with workers had to be killed"), <-h.ended)
		}
	}
	wrong = append(wrong, p.server.Close(), p.log.Close())
	return errors.Join(wrong...)
}
