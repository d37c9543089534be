package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// A pool is the queue, the logs and the artifacts that a command works with, over a
// connection to an external broker or to one of our own.
type pool struct {
	queue      *queue.Queue
	log        *session.Log
	store      *artifact.Store
	dispatcher *dispatcher.Dispatcher
	api        *api.Server // answers requests, where this process does
	client     *client.Client
	unanswered chan error // has the error with which api stopped answering; nil where it never began
	// server is the broker in this process; nil if it is another process.
	server *natsd.Server
	// owner is the process that runs the pool of the data directory, if it is another
	// one.
	owner string
	// role is the one of --creds; empty where a command has its user's rights.
	role jobs.Role
	// signKey returns the key that signs what is submitted; nil where none does.
	signKey func() (ed25519.PrivateKey, error)

	conn   *nats.Conn
	logger *slog.Logger
	level  *slog.LevelVar // of the logger
	undo   []func() error
}

// open connects to the pool of --server, or to the one that runs on the data
// directory; where none runs, it opens the directory's broker in this process.
// owner is how this process is called when another one finds it there.
func (a *app) open(ctx context.Context, owner string, hooks hooks) (*pool, error) {
	p := &pool{level: new(slog.LevelVar)}
	p.level.Set(a.cfg.Level())
	p.logger = a.cfg.Logger(a.err, p.level)
	err := a.wasServed(owner)
	if err == nil {
		err = a.connect(p, owner)
	}
	if err == nil {
		err = p.bind(ctx, a, hooks)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	if p.server != nil { // no other process can answer what this one asks
		p.answer(ctx)
	}
	return p, nil
}

// answer answers the requests of clients until the pool is closed, also while the
// services beside it drain.
func (p *pool) answer(ctx context.Context) {
	if p.unanswered != nil {
		return
	}
	p.unanswered = make(chan error, 1)
	p.start(ctx, func(ctx context.Context) error {
		err := p.api.Serve(ctx)
		p.unanswered <- err
		return err
	})
}

// answering waits until ctx ends, or requests are not answered any more, which is the
// error that it returns.
func (p *pool) answering(ctx context.Context) error {
	select {
	case err := <-p.unanswered:
		return err
	case <-ctx.Done():
		return nil
	}
}

// connect finds the broker, or becomes it.
func (a *app) connect(p *pool, owner string) error {
	role, credential, err := a.credential()
	if err != nil {
		return err
	}
	endpoint, err := natsd.Endpoint{}, error(nil)
	if a.cfg.Server == "" {
		endpoint, err = natsd.Find(a.store())
	}
	secure, wrong := a.clientTLS(endpoint.Certificate)
	if wrong != nil {
		return wrong
	}
	options := slices.Concat(clientOptions(owner), credential, secure)
	if a.cfg.Server != "" {
		p.role = role
		return p.dial(owner, a.cfg.Server, options)
	}
	switch {
	case err == nil:
		p.owner = endpoint.Owner
		if credential == nil {
			options = append(options, endpoint.Options()...)
		}
		p.role = role
		return p.dial(owner, endpoint.URL, options)
	case !errors.Is(err, natsd.ErrNotRunning):
		return fmt.Errorf("find the pool of %s: %w", a.cfg.Data, err)
	case owner == "worker":
		return cli.Fail(cli.ExitUnreachable, "start one with penstock serve, or name one with --server", "%w", &noPoolError{a.cfg.Data})
	}
	listen := "127.0.0.1:0"
	if owner == "serve" && (a.cfg.Serve.Listen != cli.Defaults().Serve.Listen || free(a.cfg.Serve.Listen)) {
		listen = a.cfg.Serve.Listen
	}
	secured, err := a.serverTLS()
	if err != nil {
		return err
	}
	_, _, most, reserve := a.cfg.Keep.Sizes()
	p.server, err = natsd.Open(natsd.Config{
		StoreDir: a.store(), Listen: listen, Owner: owner, Layout: a.bus(), TLS: secured, MaxStore: most, Reserve: reserve, Logger: p.logger,
	})
	if inUse, ok := errors.AsType[*natsd.InUseError](err); ok {
		return cli.Fail(cli.ExitUnexpected, "wait for it, use another --data, or run penstock serve so that both can use it", "%w", inUse)
	}
	if exposed, ok := errors.AsType[*natsd.ExposedError](err); ok {
		return cli.Usage("penstock serve --tls-cert FILE --tls-key FILE", "%w", exposed)
	}
	if err != nil {
		return fmt.Errorf("open the broker of %s: %w", a.cfg.Data, err)
	}
	p.undo = append(p.undo, p.server.Close)
	p.conn, err = p.server.Connect(clientOptions(owner)...)
	if err != nil {
		return fmt.Errorf("connect to the broker of %s: %w", a.cfg.Data, err)
	}
	p.undo = append(p.undo, p.hangUp)
	return nil
}

// A noPoolError says that nothing serves a data directory.
type noPoolError struct{ data string }

func (e *noPoolError) Error() string { return "no pool runs on data directory " + e.data }

// How long a service waits before it looks for its broker again: at first, and
// at most.
const (
	lookAgain    = 500 * time.Millisecond
	lookAgainMax = 15 * time.Second
)

// openPatiently is open for a service, which may be started before its broker:
// it waits for one until ctx ends, and says so once.
func (a *app) openPatiently(ctx context.Context, owner string, hooks hooks) (*pool, error) {
	for wait := lookAgain; ; wait = min(2*wait, lookAgainMax) {
		p, err := a.open(ctx, owner, hooks)
		if err == nil || !absent(err) {
			return p, err
		}
		if wait == lookAgain {
			a.err.Printf("penstock: %v; waiting for it\n", err)
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// absent reports whether there is no broker, which may be there later.
func absent(err error) bool {
	_, none := errors.AsType[*noPoolError](err)
	_, network := errors.AsType[net.Error](err)
	return none || network || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, jobs.ErrUnavailable)
}

// wasServed refuses to look for jobs in a directory that no pool has been in: that
// was mistyped, or is not this user's.
func (a *app) wasServed(owner string) error {
	if a.cfg.Server != "" || owner != "read" && owner != "wait" {
		return nil
	}
	_, err := os.Stat(a.store())
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return cli.Fail(cli.ExitNotFound, "check --data; penstock serve starts a pool, --server names one on another host", "data directory %s not found: no pool has used it", a.cfg.Data)
}

// free reports whether an address has no listener. A default that another pool uses is
// replaced; an address that the user set is not.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// store is where the embedded broker keeps everything.
func (a *app) store() string { return filepath.Join(a.cfg.Data, "nats") }

func (p *pool) dial(owner, servers string, options []nats.Option) error {
	if err := need(p.role, owner); err != nil {
		return err
	}
	conn, err := nats.Connect(servers, options...)
	if err != nil {
		return noEntry(redacted(servers), err)
	}
	p.conn = conn
	p.undo = append(p.undo, p.hangUp)
	return nil
}

// clientOptions make a connection that waits for a server that restarts: a
// worker's jobs and a watcher's place outlive that.
func clientOptions(name string) []nats.Option {
	return append(natsd.Options(), nats.Name("penstock "+name), nats.Timeout(5*time.Second))
}

// redacted is a list of servers without their passwords and tokens.
func redacted(servers string) string {
	var shown []string
	for server := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		switch {
		case err != nil:
			server = "(not a URL)"
		case u.User != nil:
			if _, both := u.User.Password(); !both {
				u.User = url.User("xxxxx") // a token
			}
			server = u.Redacted()
		}
		shown = append(shown, server)
	}
	return strings.Join(shown, ",")
}

func (p *pool) hangUp() error {
	p.conn.Close()
	return nil
}

// bind opens the streams and buckets, and makes what does not exist yet.
func (p *pool) bind(ctx context.Context, a *app, hooks hooks) error {
	cfg := a.cfg
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	p.signKey = sync.OnceValues(a.signingKey)
	// The queue first: it says what the installation is.
	ours := p.server != nil // our own broker follows our settings
	events, artifacts, _, _ := cfg.Keep.Sizes()
	p.queue, err = queue.Open(ctx, p.conn, queue.Config{
		Role: p.role, Prefix: cfg.Prefix, Tenant: cfg.Tenant, Replicas: cfg.Replicas, Lease: cfg.Lease, Bounds: jobs.Bounds{Refusals: cfg.MaxRefusals},
		Retention: cfg.Keep.Jobs, DeadRetention: cfg.Keep.Dead,
		Hooks: hooks.queue, Upgrade: ours,
	})
	if err != nil {
		return opening("queue", err)
	}
	var g errgroup.Group // each is a few round trips
	g.Go(func() (err error) {
		p.log, err = session.Open(ctx, p.conn, session.Config{
			Role: p.role, Prefix: cfg.Prefix, Tenant: cfg.Tenant, Replicas: cfg.Replicas, Retention: cfg.Keep.Events, MaxBytes: events, Upgrade: ours,
		})
		return opening("sessions", err)
	})
	g.Go(func() (err error) {
		p.store, err = artifact.Open(ctx, p.conn, artifact.Config{
			Role: p.role, Replicas: cfg.Replicas, Retention: cfg.Keep.Artifacts, Results: cfg.Keep.Results, StoreBytes: artifacts, Upgrade: ours,
		})
		return opening("artifacts", err)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	caps, err := cfg.Serve.Limits()
	if err != nil {
		return err
	}
	p.dispatcher = dispatcher.New(dispatcher.Config{
		Queue: p.queue, Log: p.log, Store: p.store, Able: a.able(), Caps: caps, Logger: p.logger, Hooks: hooks.dispatcher,
	})
	p.api = api.New(api.Config{Dispatcher: p.dispatcher, Queue: p.queue, Log: p.log, Store: p.store})
	p.client, err = client.Open(ctx, p.conn, client.Config{Prefix: cfg.Prefix, Tenant: cfg.Tenant, Role: p.role, By: "cli"})
	return err
}

// artifact writes what an attempt stored under a name.
func (p *pool) artifact(ctx context.Context, job string, epoch uint64, name string, w io.Writer) error {
	content, err := p.client.Artifact(ctx, job, epoch, name)
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

func opening(what string, err error) error {
	if err == nil {
		return nil
	}
	return unreachable(fmt.Errorf("open the %s: %w", what, err))
}

func unreachable(err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return cli.Fail(cli.ExitUnreachable, "does the server have JetStream enabled?", "%w", err)
	case errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded):
		return cli.Fail(cli.ExitUnreachable, "the server accepted the connection and did not answer in time: check its load, the network and, in a cluster, whether most of the servers run", "%w", err)
	}
	return err
}

// start runs services beside the command until the pool is closed. The
// context that it returns ends with the error of the first one that fails.
func (p *pool) start(ctx context.Context, services ...func(context.Context) error) context.Context {
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

// address says where the pool's broker is, for people.
func (p *pool) address(cfg cli.Config) string {
	if p.server != nil {
		return fmt.Sprintf("%s at %s", cfg.Data, p.server.Endpoint().URL)
	}
	return p.conn.ConnectedUrlRedacted()
}

// close undoes what open and start did, the last first.
func (p *pool) close() error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	p.undo = nil
	return errors.Join(errs...)
}
