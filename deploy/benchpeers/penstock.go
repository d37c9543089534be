package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
)

// broker serves on a port of its own until its input ends.
func broker(dir string) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: true,
	})
	if err != nil {
		panic(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		panic("the broker is not ready")
	}
	fmt.Println(srv.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	srv.Shutdown()
	srv.WaitForShutdown()
}

// penstock is this project's queue: a submit is Accept and Enqueue, a job is
// claimed, kept and settled as a worker does. Events are not measured here.
type penstock struct {
	process
	url     string
	submits *nats.Conn
	q       *queue.Queue
	stop    context.CancelFunc
	all     sync.WaitGroup
	closed  []*nats.Conn
	ended   atomic.Int64
}

func startPenstock(ctx context.Context, dir string) (peer, error) {
	p := &penstock{}
	return p, p.serve(ctx, dir)
}

// serve starts the broker, a process of its own.
func (p *penstock) serve(_ context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self, "broker", dir)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.end()
		return err
	}
	p.url = line[:len(line)-1]
	return nil
}

func (p *penstock) connect(ctx context.Context) (*queue.Queue, error) {
	nc, err := nats.Connect(p.url)
	if err != nil {
		return nil, err
	}
	p.closed = append(p.closed, nc)
	return queue.Open(ctx, nc, queue.Config{Lease: 10 * time.Second})
}

func (p *penstock) open(ctx context.Context, workers int, started func(int)) (err error) {
	ctx, p.stop = context.WithCancel(ctx)
	if p.q, err = p.connect(ctx); err != nil {
		return err
	}
	work, err := p.connect(ctx) // a worker process has its own
	if err != nil {
		return err
	}
	for n := range workers {
		p.all.Go(func() {
			for ctx.Err() == nil {
				if err := p.work(ctx, work, n, started); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "benchpeers: penstock:", err)
				}
			}
		})
	}
	return nil
}

func (p *penstock) work(ctx context.Context, q *queue.Queue, slot int, started func(int)) error {
	c, err := q.Claim(ctx, "worker-"+strconv.Itoa(slot), []string{"default"})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(c.Job().Prompt)
	if err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() { kept <- c.Keep(keeping) }()
	started(n)
	_, err = c.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
	stop()
	if err := errors.Join(err, <-kept); err != nil {
		return err
	}
	p.ended.Add(1)
	return nil
}

func (p *penstock) submit(ctx context.Context, n int) error {
	job := jobs.Job{Prompt: strconv.Itoa(n), Agent: jobs.Agent{Name: "command", Command: []string{"true"}}}
	rec, _, err := p.q.Accept(ctx, job.WithDefaults())
	if err != nil {
		return err
	}
	return p.q.Enqueue(ctx, rec)
}

// done needs not ask: a settle returns when the verdict is stored.
func (p *penstock) done(_ context.Context, jobs int) (bool, error) {
	return p.ended.Load() >= int64(jobs), nil
}

func (p *penstock) close() {
	if p.stop != nil {
		p.stop()
	}
	p.all.Wait()
	for _, nc := range p.closed {
		nc.Close()
	}
	p.end()
}
