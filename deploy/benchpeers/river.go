package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// onPostgres is River on a PostgreSQL that syncs every commit. Many completions share a
// transaction as it comes.
type onPostgres struct {
	*process
	every  time.Duration // how often it may fetch; zero as it comes
	dir    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	begun  atomic.Int64
}

type noop struct {
	N int `json:"n"`
}

func (noop) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noop]
	started func(int)
}

func (w *noopWorker) Work(_ context.Context, job *river.Job[noop]) error {
	w.started(job.Args.N)
	return nil
}

func startRiver(ctx context.Context, dir string) (peer, error) {
	p, socket, err := startPostgres(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &onPostgres{process: p, dir: socket}, nil
}

// A tunedRiver fetches as soon as it may, and takes many jobs in one submission.
type tunedRiver struct{ *onPostgres }

func startTunedRiver(ctx context.Context, dir string) (peer, error) {
	p, err := startRiver(ctx, dir)
	if err != nil {
		return nil, err
	}
	r := tunedRiver{p.(*onPostgres)}
	r.every = river.FetchCooldownMin
	return r, nil
}

func (r tunedRiver) submitMany(ctx context.Context, from, to int) error {
	var many []river.InsertManyParams
	for n := from; n < to; n++ {
		many = append(many, river.InsertManyParams{Args: noop{N: n}})
	}
	_, err := r.client.InsertManyFast(ctx, many)
	return err
}

func (r *onPostgres) open(ctx context.Context, workers int, started func(int)) (err error) {
	if r.pool, err = pgxpool.New(ctx, "host="+r.dir+" user=bench dbname=postgres pool_max_conns=32"); err != nil {
		return err
	}
	for began := time.Now(); r.pool.Ping(ctx) != nil && time.Since(began) < time.Minute; { // it listens before it serves
		time.Sleep(20 * time.Millisecond)
	}
	driver := riverpgxv5.New(r.pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	all := river.NewWorkers()
	river.AddWorker(all, &noopWorker{started: func(n int) { r.begun.Add(1); started(n) }})
	r.client, err = river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: all,
		Logger: slog.New(slog.DiscardHandler), FetchCooldown: r.every, FetchPollInterval: r.every * 20,
	})
	if err != nil {
		return err
	}
	return r.client.Start(ctx)
}

func (r *onPostgres) submit(ctx context.Context, n int) error {
	_, err := r.client.Insert(ctx, noop{N: n}, nil)
	return err
}

func (r *onPostgres) done(ctx context.Context, jobs int) (bool, error) {
	if r.begun.Load() < int64(jobs) {
		return false, nil // asking the server would cost it time
	}
	var n int
	err := r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&n)
	return n >= jobs, err
}

func (r *onPostgres) close() {
	if r.client != nil {
		_ = r.client.Stop(context.Background()) // nothing is running
	}
	if r.pool != nil {
		r.pool.Close()
	}
	r.end()
}
