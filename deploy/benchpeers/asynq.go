package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// onRedis is asynq on a Redis that syncs every write.
type onRedis struct {
	*process
	opt       asynq.RedisClientOpt
	every     time.Duration // how often it looks into an empty queue; zero as it comes
	client    *asynq.Client
	server    *asynq.Server
	inspector *asynq.Inspector
	begun     atomic.Int64
}

func startAsynq(every time.Duration) func(context.Context, string) (peer, error) {
	return func(ctx context.Context, dir string) (peer, error) {
		p, socket, err := startRedis(ctx, dir)
		if err != nil {
			return nil, err
		}
		return &onRedis{process: p, opt: asynq.RedisClientOpt{Network: "unix", Addr: socket}, every: every}, nil
	}
}

func (r *onRedis) open(_ context.Context, workers int, started func(int)) error {
	r.client, r.inspector = asynq.NewClient(r.opt), asynq.NewInspector(r.opt)
	r.server = asynq.NewServer(r.opt, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel, TaskCheckInterval: r.every})
	return r.server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		n, err := strconv.Atoi(string(t.Payload()))
		if err == nil {
			r.begun.Add(1)
			started(n)
		}
		return err
	}))
}

func (r *onRedis) submit(ctx context.Context, n int) error {
	_, err := r.client.EnqueueContext(ctx, asynq.NewTask("noop", []byte(strconv.Itoa(n))))
	return err
}

func (r *onRedis) done(_ context.Context, jobs int) (bool, error) {
	if r.begun.Load() < int64(jobs) {
		return false, nil // asking the server would cost it time
	}
	info, err := r.inspector.GetQueueInfo("default")
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.ProcessedTotal >= jobs, nil
}

func (r *onRedis) close() {
	if r.server != nil {
		r.server.Shutdown()
		_ = r.client.Close() // both have nothing left to send
		_ = r.inspector.Close()
	}
	r.end()
}
