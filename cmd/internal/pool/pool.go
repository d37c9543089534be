package pool

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/dispatcher/overlaps"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/purge"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/quota"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/retention"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/token"
	"github.com/penstock-run/penstock/jobs/webhook"
)

// A Pool is the queue, the logs and the artifacts that a command works with, over a
// connection to an external broker or to one of our own. Over HTTP it has a client and
// nothing else.
type Pool struct {
	Queue      *queue.Queue
	Log        *session.Log
	Store      *artifact.Store
	Tokens     *token.Store
	Audit      *audit.Log
	Webhooks   *webhook.Store
	Dispatcher *dispatcher.Dispatcher
	Quotas     *quota.Door // where this process may lead; else nil
	API        *api.Server // answers requests, where this process does
	// PullRequests reports why this process can open no pull request for a job; nil: it opens none.
	PullRequests func(jobs.Job) error
	Client       *client.Client
	Conn         *nats.Conn
	Logger       *slog.Logger
	Level        *slog.LevelVar // of Logger
	Tracing      tracing
	// Owner is the process that runs the pool of the data directory, if it is another
	// one.
	Owner string

	serves     bool       // this process is penstock serve, which has the credentials of forges
	unanswered chan error // has the error with which API stopped answering; nil where it never began
	// server is the broker in this process; nil if it is another process.
	server *natsd.Server
	// role is the one of --creds; empty where a command has its user's rights.
	role jobs.Role
	// signKey returns the key that signs what is submitted; nil where none does.
	signKey func() (ed25519.PrivateKey, error)

	undo []func() error
}

// Feed returns what tells of changes in the pool.
func (p *Pool) Feed(shell cli.Shell) (*feed.Feed, error) {
	return feed.New(p.Conn, feed.Config{Prefix: shell.Config.Prefix, Role: p.role})
}

// Open connects to the pool of --server, or to the one that runs on the data
// directory; where none runs, it opens the directory's broker in this process.
// owner is how this process is called when another one finds it there.
func Open(ctx context.Context, shell cli.Shell, owner string, hooks Hooks) (*Pool, error) {
	p := &Pool{Level: new(slog.LevelVar), serves: owner == "serve"}
	p.Level.Set(shell.Config.Level())
	p.Logger = shell.Config.Logger(shell.Err, p.Level)
	if OverHTTP(shell.Config) {
		if err := p.openHTTP(ctx, shell); err != nil {
			return nil, err
		}
		return p, nil
	}
	err := wasServed(shell, owner)
	if err == nil && isService(owner) { // before it waits for its broker
		err = trace(ctx, shell, p, owner, hooks)
	}
	if err == nil {
		err = connect(shell, p, owner)
	}
	if err == nil && p.server != nil && worksAlone(owner) {
		err = trace(ctx, shell, p, owner, hooks)
	}
	if err == nil {
		err = p.Bind(ctx, shell, p.Tracing.Hooks(hooks))
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if p.server != nil { // no other process can answer what this one asks
		p.Answer(ctx)
	}
	return p, nil
}

// Answer answers the requests of clients until the pool is closed, also while the
// services beside it drain.
func (p *Pool) Answer(ctx context.Context) {
	if p.unanswered != nil {
		return
	}
	p.unanswered = make(chan error, 1)
	p.Start(ctx, func(ctx context.Context) error {
		err := p.API.Serve(ctx)
		p.unanswered <- err
		return err
	})
}

// Answering waits until ctx ends, or requests are not answered any more, which is the
// error that it returns.
func (p *Pool) Answering(ctx context.Context) error {
	select {
	case err := <-p.unanswered:
		return err
	case <-ctx.Done():
		return nil
	}
}

// How long a service waits before it looks for its broker again: at first, and
// at most.
const (
	lookAgain    = 500 * time.Millisecond
	lookAgainMax = 15 * time.Second
)

// OpenPatiently is open for a service, which may be started before its broker:
// it waits for one until ctx ends, and says so once.
func OpenPatiently(ctx context.Context, shell cli.Shell, owner string, hooks Hooks) (*Pool, error) {
	for wait := lookAgain; ; wait = min(2*wait, lookAgainMax) {
		p, err := Open(ctx, shell, owner, hooks)
		if err == nil || !absent(err) {
			return p, err
		}
		if wait == lookAgain {
			servicelog.Say(shell, servicelog.Notice{
				Level: slog.LevelWarn, Text: fmt.Sprintf("%v; waiting for it", err),
				Message: "waiting for the broker", Attrs: []slog.Attr{slog.Any("err", err)},
			})
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// wasServed refuses to look for jobs, or for a pool, in a directory that no pool has been in: that
// was mistyped, or is not this user's.
func wasServed(shell cli.Shell, owner string) error {
	if shell.Config.Server != "" || !slices.Contains([]string{"read", "wait", "bench"}, owner) {
		return nil
	}
	_, err := os.Stat(StoreDir(shell))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return cli.Fail(cli.ExitNotFound, "check --data; penstock serve starts a pool, --server names one on another host", "data directory %s not found: no pool has used it", shell.Config.Data)
}

// Bind opens the streams and buckets, and makes what does not exist yet.
func (p *Pool) Bind(ctx context.Context, shell cli.Shell, hooks Hooks) error {
	cfg := *shell.Config
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	p.signKey = sync.OnceValues(func() (ed25519.PrivateKey, error) { return signing.Key(&cfg) })
	ours := p.server != nil // our own broker follows our settings
	events, artifacts, _, _ := cfg.Keep.Sizes()
	var g errgroup.Group // each is a few round trips
	g.Go(func() (err error) {
		p.Queue, err = queue.Open(ctx, p.Conn, queue.Config{
			Role: p.role, Prefix: cfg.Prefix, Tenant: cfg.Tenant, Replicas: cfg.Replicas, Lease: cfg.Lease, Bounds: jobs.Bounds{Refusals: cfg.MaxRefusals},
			Retention: cfg.Keep.Jobs, DeadRetention: cfg.Keep.Dead,
			Hooks: hooks.Queue, Upgrade: ours,
		})
		return opening("queue", err)
	})
	if ours { // then the queue says what the installation is, before the others ask
		if err := g.Wait(); err != nil {
			return err
		}
	}
	g.Go(func() (err error) {
		p.Log, err = session.Open(ctx, p.Conn, session.Config{
			Role: p.role, Prefix: cfg.Prefix, Tenant: cfg.Tenant, Replicas: cfg.Replicas, Retention: cfg.Keep.Events, MaxBytes: events, Upgrade: ours,
		})
		return opening("sessions", err)
	})
	g.Go(func() (err error) {
		p.Store, err = artifact.Open(ctx, p.Conn, artifact.Config{
			Role: p.role, Replicas: cfg.Replicas, Retention: cfg.Keep.Artifacts, Results: cfg.Keep.Results, StoreBytes: artifacts, Upgrade: ours,
		})
		return opening("artifacts", err)
	})
	g.Go(func() (err error) {
		p.Tokens, err = token.Open(ctx, p.Conn, token.Config{Role: p.role, Prefix: cfg.Prefix, Replicas: cfg.Replicas, Upgrade: ours})
		return opening("tokens", err)
	})
	g.Go(func() (err error) {
		p.Audit, err = audit.Open(ctx, p.Conn, audit.Config{Role: p.role, Prefix: cfg.Prefix, Replicas: cfg.Replicas, Retention: cfg.Keep.Audit, Upgrade: ours})
		return opening("audit log", err)
	})
	g.Go(func() (err error) {
		p.Webhooks, err = webhook.Open(ctx, p.Conn, webhook.Config{Role: p.role, Prefix: cfg.Prefix, Tenant: cfg.Tenant, Replicas: cfg.Replicas, Upgrade: ours})
		return opening("webhooks", err)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if err := dispatch(p, shell, hooks); err != nil {
		return err
	}
	var err error
	p.Client, err = client.Open(ctx, p.Conn, client.Config{Prefix: cfg.Prefix, Tenant: cfg.Tenant, Role: p.role, By: "cli"})
	return err
}

// dispatch makes the dispatcher of a pool, and what answers requests.
func dispatch(p *Pool, shell cli.Shell, hooks Hooks) error {
	cfg := shell.Config
	caps, err := cfg.Serve.Limits()
	if err != nil {
		return err
	}
	budgets, err := cfg.Serve.Spending()
	if err != nil {
		return err
	}
	allowed, err := cfg.Webhooks.Networks()
	if err != nil {
		return err
	}
	sending := deliver.New(deliver.Config{
		Store: p.Webhooks, Sender: deliver.NewSender(allowed), Job: p.Queue.Get, Logger: p.Logger.With(servicelog.Component(servicelog.InWebhooks)), Hooks: hooks.Webhooks,
	})
	rules, err := cfg.Keep.ByKey()
	if err != nil {
		return err
	}
	quotas, err := cfg.Serve.JobQuotas()
	if err != nil {
		return err
	}
	log := p.Logger.With(servicelog.Component(servicelog.InDispatcher))
	keeper := retention.New(retention.Config{
		Queue: p.Queue, Catalog: catalog.New(p.Queue), Purger: purge.New(p.Queue, p.Store),
		Rules: rules, Pool: cfg.Keep.Jobs, Logger: log, Removed: hooks.Expired,
	})
	door := quota.New(p.Queue, quotas)
	p.Quotas = door
	admit := door.Admit
	if len(quotas) == 0 {
		admit = nil // which costs nothing
	}
	pulls := pullRequests(p, cfg, log)
	beside := overlaps.New(overlaps.Config{Store: overlap.Of(p.Queue.Workers()), Record: p.Queue.Get, Append: p.Log.Append, Logger: log})
	hooks.Dispatcher.Changed = func(c record.Change) {
		keeper.Note(c)
		door.Note(c)
		pulls.Note(c)
	}
	leading := hooks.Dispatcher.Leading
	hooks.Dispatcher.Leading = func(on bool) {
		door.Lead(on)
		if leading != nil {
			leading(on)
		}
	}
	p.Dispatcher = dispatcher.New(dispatcher.Config{
		Queue: p.Queue, Log: p.Log, Store: p.Store, Able: workerparts.Able(cfg), PullRequests: p.PullRequests, Caps: caps, Budgets: budgets, Admit: admit, MaxDepth: cfg.Serve.MaxDepth,
		Duties: []func(context.Context){sending.Run, keeper.Run, door.Run, pulls.Run, beside.Run}, Logger: log, Hooks: hooks.Dispatcher,
	})
	p.API = api.New(api.Config{
		Dispatcher: p.Dispatcher, Queue: p.Queue, Log: p.Log, Store: p.Store, Tokens: p.Tokens, Audit: p.Audit,
		Webhooks: p.Webhooks, Deliverer: sending, KeptUntil: keeper.Until, Quotas: quotas, PullRequests: p.PullRequests, Unrecorded: p.unrecorded,
	})
	return nil
}

// unrecorded has the log of the process keep what the audit log has not taken.
func (p *Pool) unrecorded(e operation.AuditEntry, err error) {
	p.Logger.Warn("audit log has not taken an entry", servicelog.Component(servicelog.InDispatcher), "operation", e.Operation, "about", e.About, "who", e.Who, "role", e.Role, "via", e.Via, "outcome", e.Outcome, "err", err)
}

// Artifact writes what an attempt stored under a name.
func (p *Pool) Artifact(ctx context.Context, job string, epoch uint64, name string, w io.Writer) error {
	content, err := p.Client.Artifact(ctx, job, epoch, name)
	if p.role == jobs.RoleSubmitter && errors.Is(err, jobs.ErrForbidden) {
		return cli.Fail(cli.ExitDenied, useRole([]jobs.Role{jobs.RoleViewer, jobs.RoleOperator}), "%w", err)
	}
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := io.Copy(w, content); err != nil {
		return fmt.Errorf("artifact %s of job %s: %w", name, job, err)
	}
	return nil
}

// Start runs services beside the command until the pool is closed. The
// context that it returns ends with the error of the first one that fails.
func (p *Pool) Start(ctx context.Context, services ...func(context.Context) error) context.Context {
	ctx, fail := context.WithCancelCause(ctx)
	// The services end after the command does, not with it: what the command
	// still has to say needs them.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	for _, service := range services {
		g.Go(func() error {
			err := service(serving)
			if err != nil {
				fail(err)
			}
			return nil
		})
	}
	p.undo = append(p.undo, func() error {
		stop()
		defer fail(nil)
		return g.Wait()
	})
	return ctx
}

// Own reports whether the broker is in this process, so that no other one serves the pool.
func (p *Pool) Own() bool { return p.server != nil }

// Reconnect has the files of the credential and of the certificates read again.
func (p *Pool) Reconnect() error {
	if p.Own() {
		return nil
	}
	// A new connection reads the files. What is under way waits for it.
	return p.Conn.ForceReconnect()
}

// Broker is the URL of the pool's broker, without a password.
func (p *Pool) Broker() string {
	if p.server != nil {
		return p.server.Endpoint().URL
	}
	return p.Conn.ConnectedUrlRedacted()
}

// Close undoes what Open and Start did, the last first.
func (p *Pool) Close() error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	p.undo = nil
	return errors.Join(errs...)
}
