package servecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/httpdoor"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/dispatcher/attach"
	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/dispatcher/dashboard/jobpage"
	"github.com/penstock-run/penstock/dispatcher/dashboard/poolpages"
	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/token"
)

// An httpListener is where HTTP is served, and how.
type httpListener struct {
	net.Listener
	secure *tls.Config // nil without TLS
}

// url is the address, as a client writes it.
func (l *httpListener) url() string {
	if l.secure != nil {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// listenHTTP opens the address of --http; nil if there is none. A default that another
// program has taken is replaced by a free port; one that was asked for is not.
func listenHTTP(c cli.ServeConfig) (*httpListener, error) {
	if c.HTTP == "" {
		return nil, nil
	}
	l := &httpListener{}
	var err error
	if c.HTTPTLSCert != "" || c.HTTPTLSKey != "" || c.HTTPTLSClientCA != "" {
		if l.secure, err = reloadedTLS(c.HTTPTLSCert, c.HTTPTLSKey, c.HTTPTLSClientCA); err != nil {
			return nil, cli.Usage("use certificate and key, as PEM", "--http-tls-cert, --http-tls-key, --http-tls-client-ca: %w", err)
		}
	}
	host, _, err := net.SplitHostPort(c.HTTP)
	if err != nil {
		return nil, cli.Usage("write host:port, as in 127.0.0.1:8080", "--http: %w", err)
	}
	if ip := net.ParseIP(host); l.secure == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, cli.Usage("give it a certificate with --http-tls-cert and --http-tls-key, or let a proxy on this host speak TLS",
			"--http %s: an address beyond loopback needs TLS: tokens could be read on the way", c.HTTP)
	}
	l.Listener, err = net.Listen("tcp", c.HTTP)
	if errors.Is(err, syscall.EADDRINUSE) && c.HTTP == cli.Defaults().Serve.HTTP {
		l.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, cli.Fail(cli.ExitUnexpected, `name another one with --http, or none with --http ""`, "HTTP address: %w", err)
	}
	return l, nil
}

// serveHTTP answers HTTP until the pool is closed, also while the services beside it
// drain: what runs then is still followed. It returns a service that waits for its
// failure. The owner of the data directory has its token; others have tokens that were
// added.
func serveHTTP(ctx context.Context, shell cli.Shell, p *pool.Pool, l *httpListener, watch httpapi.Hooks) (func(context.Context) error, error) {
	own, err := httpapi.OpenToken(shell.Config.Data)
	if err != nil {
		return nil, cli.Fail(cli.ExitUnexpected, "", "token of HTTP: %w", err)
	}
	deliveries, err := openHooks(shell, p)
	if err != nil {
		return nil, err
	}
	log := p.Logger.With(servicelog.Component(servicelog.InHTTP))
	refusals := refusalLog{log: log}
	added := token.NewVerifier(p.Tokens, token.VerifierConfig{Hooks: refusals.hooks()})
	p.Start(ctx, added.Run)
	changes, err := p.Feed(shell)
	if err != nil {
		return nil, err
	}
	authenticate, err := identify(shell.Config.Serve, anyOf(httpapi.Bearer(own, httpapi.Owner), added))
	if err != nil {
		return nil, err
	}
	pages := dashboard.New(dashboard.Config{
		Client: p.Client, Authenticate: authenticate, PullRequests: p.PullRequests, ReadOnly: shell.Config.Serve.UIReadOnly, Version: shell.Release, Logger: log,
		Sections: []dashboard.Section{poolpages.Section(), jobpage.Section()},
	})
	forModels := models(shell, p)
	p.Start(ctx, forModels.Run)
	terminals := attach.New(attach.Config{Client: p.Client, Attached: recordIn(p), Logger: log})
	p.Start(ctx, terminals.Run)
	server := httpapi.New(httpapi.Config{
		Client: p.Client, Models: forModels.Serve, Attach: terminals.Serve, Changes: changes.Follow, Deliveries: deliveries, Authenticate: authenticate, Pages: pages.Serve, Hosts: append([]string{httpdoor.Host(own)}, shell.Config.Serve.HTTPHosts...),
		Rate: shell.Config.Serve.HTTPRate, Refused: recordIn(p),
		Version: shell.Release, OpenAPI: schema.OpenAPI, AsyncAPI: schema.AsyncAPI, Schema: schema.For, Logger: log, Hooks: watch,
	})
	withdraw, err := httpdoor.Announce(shell.Config.Data, l.url())
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	p.Start(ctx, func(ctx context.Context) error {
		err := server.Serve(ctx, l.Listener, l.secure)
		failed <- errors.Join(err, withdraw())
		return nil
	})
	return func(ctx context.Context) error {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}, nil
}

// recordIn returns what keeps in the audit log what no dispatcher hears of. An entry that
// the log does not take must not keep requests from being answered.
func recordIn(p *pool.Pool) func(context.Context, operation.AuditEntry) {
	return func(ctx context.Context, e operation.AuditEntry) {
		if err := p.Audit.Append(ctx, e); err != nil {
			p.Logger.Warn("an entry is not in the audit log", servicelog.Component(servicelog.InHTTP), "operation", e.Operation, "about", e.About, "who", e.Who, "err", err)
		}
	}
}
