package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
)

// Reach connects to the broker, and neither opens nor makes anything on it.
func Reach(shell cli.Shell, owner string) (*Pool, error) {
	p := &Pool{Logger: shell.Config.Logger(shell.Err, shell.Config.Level())}
	if err := connect(shell, p, owner); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// OpenDirectory opens a directory's broker without serving it, for a command that fills
// it and ends.
func OpenDirectory(shell cli.Shell, dir, owner string) (*Pool, error) {
	p := &Pool{Logger: shell.Config.Logger(shell.Err, shell.Config.Level())}
	server, err := natsd.Open(natsd.Config{StoreDir: dir, Owner: owner, Fast: true, Logger: p.Logger.With(servicelog.Component(servicelog.InBroker))})
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, server.Close)
	if p.Conn, err = server.Connect(clientOptions(owner)...); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.undo = append(p.undo, p.hangUp)
	return p, nil
}

// connect finds the broker, or becomes it.
func connect(shell cli.Shell, p *Pool, owner string) error {
	role, credential, err := credential(shell)
	if err != nil {
		return err
	}
	endpoint, err := natsd.Endpoint{}, error(nil)
	if shell.Config.Server == "" {
		endpoint, err = natsd.Find(StoreDir(shell))
	}
	secure, wrong := clientTLS(shell, endpoint.Certificate)
	if wrong != nil {
		return wrong
	}
	options := slices.Concat(clientOptions(owner), credential, secure)
	if shell.Config.Server != "" {
		p.role = role
		return p.dial(owner, shell.Config.Server, options)
	}
	switch {
	case err == nil:
		p.Owner = endpoint.Owner
		if credential == nil {
			options = append(options, endpoint.Options()...)
		}
		p.role = role
		return p.dial(owner, endpoint.URL, options)
	case !errors.Is(err, natsd.ErrNotRunning):
		return fmt.Errorf("find the pool of %s: %w", shell.Config.Data, err)
	case owner == "worker":
		return cli.Fail(cli.ExitUnreachable, "start one with penstock serve, or name one with --server", "%w", &noPoolError{shell.Config.Data})
	}
	return embed(shell, p, owner)
}

// embed becomes the broker of the data directory, and connects to it.
func embed(shell cli.Shell, p *Pool, owner string) error {
	listen := "127.0.0.1:0"
	if owner == "serve" && (shell.Config.Serve.Listen != cli.Defaults().Serve.Listen || free(shell.Config.Serve.Listen)) {
		listen = shell.Config.Serve.Listen
	}
	secured, err := serverTLS(shell)
	if err != nil {
		return err
	}
	_, _, most, reserve := shell.Config.Keep.Sizes()
	p.server, err = natsd.Open(natsd.Config{
		StoreDir: StoreDir(shell), Listen: listen, Owner: owner, Layout: Layout(shell), TLS: secured, MaxStore: most, Reserve: reserve, Logger: p.Logger.With(servicelog.Component(servicelog.InBroker)),
		// Nothing else in the process comes to an end either: it all asks the broker.
		Stuck: func(error) { os.Exit(cli.ExitUnreachable) },
	})
	if inUse, ok := errors.AsType[*natsd.InUseError](err); ok {
		return cli.Fail(cli.ExitUnexpected, "wait for it, use another --data, or run penstock serve so that both can use it", "%w", inUse)
	}
	if exposed, ok := errors.AsType[*natsd.ExposedError](err); ok {
		return cli.Usage("penstock serve --tls-cert FILE --tls-key FILE", "%w", exposed)
	}
	if err != nil {
		return fmt.Errorf("open the broker of %s: %w", shell.Config.Data, err)
	}
	p.undo = append(p.undo, p.server.Close)
	p.Conn, err = p.server.Connect(clientOptions(owner)...)
	if err != nil {
		return fmt.Errorf("connect to the broker of %s: %w", shell.Config.Data, err)
	}
	p.undo = append(p.undo, p.hangUp)
	return nil
}

// A noPoolError says that nothing serves a data directory.
type noPoolError struct{ data string }

func (e *noPoolError) Error() string { return "no pool runs on data directory " + e.data }

// absent reports whether there is no broker, which may be there later.
func absent(err error) bool {
	_, none := errors.AsType[*noPoolError](err)
	_, network := errors.AsType[net.Error](err)
	return none || network || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, jobs.ErrUnavailable)
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

// StoreDir is where the embedded broker keeps everything.
func StoreDir(shell cli.Shell) string { return filepath.Join(shell.Config.Data, "nats") }

func (p *Pool) dial(owner, servers string, options []nats.Option) error {
	if err := need(p.role, owner); err != nil {
		return err
	}
	conn, err := natsd.Dial(servers, options...)
	if err != nil {
		return noEntry(Redacted(servers), err)
	}
	p.Conn = conn
	p.undo = append(p.undo, p.hangUp)
	return nil
}

// clientOptions make a connection that waits for a server that restarts: a
// worker's jobs and a watcher's place outlive that. The handshake may take as long as a
// broker allows that is far away.
func clientOptions(name string) []nats.Option {
	return append(natsd.Options(), nats.Name("penstock "+name), nats.Timeout(10*time.Second))
}

// Redacted is a list of servers without their passwords and tokens.
func Redacted(servers string) string {
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

func (p *Pool) hangUp() error {
	p.Conn.Close()
	return nil
}

func opening(what string, err error) error {
	if err == nil {
		return nil
	}
	return Unreachable(fmt.Errorf("open the %s: %w", what, err))
}

// Unreachable adds exit code and advice to the error of a broker that does not answer.
func Unreachable(err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return cli.Fail(cli.ExitUnreachable, "does the server have JetStream enabled?", "%w", err)
	case errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded):
		return cli.Fail(cli.ExitUnreachable, "the server accepted the connection and did not answer in time: check its load, the network and, in a cluster, whether most of the servers run", "%w", err)
	}
	return err
}
