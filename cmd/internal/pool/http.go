package pool

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/httpdoor"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/feed"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

// OverHTTP reports whether --server names the HTTP interface of a pool instead of its
// broker.
func OverHTTP(settings *cli.Config) bool {
	return strings.HasPrefix(settings.Server, "https://") || strings.HasPrefix(settings.Server, "http://")
}

// busOnly are the commands that an HTTP interface cannot serve, each with what to do
// instead. It serves the subcommands of one that is alone.
var busOnly = map[string]struct {
	instead string
	alone   bool
}{
	"worker":  {instead: "a worker connects to the broker: name that with --server nats://… or tls://…, and --creds", alone: true},
	"serve":   {instead: "serve connects to the broker: name that with --server nats://… or tls://…, and --creds"},
	"nats":    {instead: "run it where the broker is reachable, with --server nats://… or tls://…"},
	"backup":  {instead: "run it where the broker is reachable, with --server nats://… or tls://…"},
	"restore": {instead: "run it where the broker is reachable, with --server nats://… or tls://…"},
	"chaos":   {instead: "leave --server out: chaos breaks a pool of its own"},
	"clean":   {instead: "clean is about the workers of this host: leave --server out, or name their broker"},
}

// CheckServer refuses a command that the server of the settings cannot serve. The path is
// that of the command, without the name of the program.
func CheckServer(settings *cli.Config, path string) error {
	if !OverHTTP(settings) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(busOnly)) {
		if only := busOnly[name]; path == name || !only.alone && strings.HasPrefix(path, name+" ") {
			return cli.Usage(only.instead, "penstock %s does not work over HTTP", name)
		}
	}
	return nil
}

// HTTPDoor returns what a program needs that asks the HTTP interface of a pool itself: that
// of --server, or of the penstock serve that runs on the data directory.
func HTTPDoor(shell cli.Shell) (client.HTTPConfig, error) {
	settings := *shell.Config
	if settings.Server == "" {
		address, err := httpdoor.Address(settings.Data)
		if err != nil {
			return client.HTTPConfig{}, cli.Fail(cli.ExitUnreachable, "penstock serve runs one; --server names one on another host", "%w", err)
		}
		settings.Server = address
	}
	server, err := client.ServerAddress(settings.Server)
	if err != nil {
		return client.HTTPConfig{}, noHTTP(settings.Server, err)
	}
	token, err := httpToken(&settings)
	if err != nil {
		return client.HTTPConfig{}, err
	}
	secure, err := clientTLSConfig(shell, nil)
	return client.HTTPConfig{Server: server, Token: token, TLS: secure, By: "cli"}, err
}

// openHTTP makes the pool that of an HTTP interface.
func (p *Pool) openHTTP(ctx context.Context, shell cli.Shell) error {
	settings := shell.Config
	door, err := HTTPDoor(shell)
	if err != nil {
		return err
	}
	p.Client, err = client.OpenHTTP(ctx, door)
	if err != nil {
		return noHTTP(settings.Server, err)
	}
	p.role = p.Client.Role()
	p.signKey = sync.OnceValues(func() (ed25519.PrivateKey, error) { return signing.Key(settings) })
	p.undo = append(p.undo, func() error { p.Client.Close(); return nil })
	return nil
}

// httpToken is the token of the settings. For a server on this host it may be the one that
// penstock serve keeps in the data directory.
func httpToken(settings *cli.Config) (string, error) {
	const hint = "penstock token add NAME --role ROLE makes a token"
	switch {
	case settings.TokenFile != "":
		content, err := input.ReadFile(settings.TokenFile, 4<<10)
		token := strings.TrimSpace(string(content))
		if err == nil && (token == "" || strings.ContainsAny(token, " \t\r\n")) {
			err = fmt.Errorf("%s has not one token in it", settings.TokenFile)
		}
		if err != nil {
			return "", cli.Usage(hint, "--token-file: %w", err)
		}
		return token, nil
	case settings.Token != "":
		return settings.Token, nil
	}
	switch token, err := httpdoor.Token(settings.Data, settings.Server); {
	case errors.Is(err, httpdoor.ErrClosed):
		return "", cli.Fail(cli.ExitUnreachable, "is it running? penstock serve runs one; --token-file names the token of another one", "%w", err)
	case token != "" || err != nil:
		return token, err
	}
	missing := "not allowed: no token for %s: name a file that has one with --token-file, or set PENSTOCK_TOKEN"
	if settings.Creds != "" {
		missing += "; --creds is for brokers"
	}
	return "", cli.Fail(cli.ExitDenied, hint, missing, settings.Server)
}

// noHTTP says why a server could not be used.
func noHTTP(server string, err error) error {
	if _, foreign := errors.AsType[*client.ForeignServerError](err); foreign {
		return cli.Fail(cli.ExitUnreachable, "--server names the address that penstock serve prints as HTTP, without a path", "%w", err)
	}
	if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
		return cli.Usage("write it as https://host or https://host:port", "--server %s %s", Redacted(server), invalid.Fields[0].Reason)
	}
	switch {
	case errors.Is(err, client.ErrUnauthenticated):
		return refusedToken(err)
	case errors.Is(err, client.ErrNoDispatcher):
		return cli.Fail(cli.ExitUnreachable, "is it running? penstock serve runs one", "%w", err)
	case insecure(err) != "":
		return cli.Fail(cli.ExitUnreachable, insecure(err), "%w", err)
	}
	return cli.Fail(cli.ExitUnreachable, "check the server, and what is between it and here", "%w", err)
}

func refusedToken(err error) error {
	return cli.Fail(cli.ExitDenied, "penstock token ls says whether it expired or was removed; penstock token add NAME --role ROLE makes another one", "not allowed: %w", err)
}

// adviseHTTP adds the way out to errors of an HTTP interface.
func adviseHTTP(settings *cli.Config, err error) error {
	if _, told := errors.AsType[*cli.Error](err); told {
		return err
	}
	switch {
	case errors.Is(err, client.ErrUnauthenticated):
		return refusedToken(err)
	case errors.Is(err, client.ErrNoDispatcher):
		return cli.Fail(cli.ExitUnreachable, "is penstock serve running at "+settings.Server+"?", "%w", err)
	case jobs.Code(err) == jobs.CodeForbidden:
		return cli.Fail(cli.ExitDenied, "use a token of a role that may: penstock token add NAME --role ROLE makes one", "%w", err)
	}
	return err
}

// Watch returns the jobs that a filter selects as they are now, and each again when it
// changes, until ctx ends.
func (p *Pool) Watch(ctx context.Context, f record.Filter) iter.Seq2[jobs.Record, error] {
	if p.Queue != nil {
		return p.Queue.Watch(ctx, f)
	}
	wanted := operation.ListRequest{Batch: f.Batch, Queue: f.Queue}
	if !f.Since.IsZero() {
		wanted.Since = &f.Since
	}
	return p.Client.Watch(ctx, wanted, f.Caught)
}

// Changes returns what changes in the pool behind a place, until ctx ends: behind "" from
// now on. Lost is called while the pool does not answer.
func Changes(ctx context.Context, shell cli.Shell, p *Pool, after string, lost func(error)) iter.Seq2[feed.Item, error] {
	return func(yield func(feed.Item, error) bool) {
		if p.Queue == nil {
			for c, err := range p.Client.Changes(ctx, after, lost) {
				if !yield(feed.Item{Place: c.Place, Kind: feed.Kind(c.Kind), Data: c.Data}, err) {
					return
				}
			}
			return
		}
		if !p.role.All() {
			yield(feed.Item{}, cli.Fail(cli.ExitDenied, "use a credential of role operator, or a token of role viewer with --server https://…",
				"not allowed: role %s does not read all changes of a pool on the bus", p.role))
			return
		}
		from, err := p.Feed(shell)
		if err != nil {
			yield(feed.Item{}, err)
			return
		}
		p.Conn.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				lost(err)
			}
		})
		from.Follow(ctx, after)(yield)
	}
}
