package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/client"
)

// Peek reads from the pool of the settings, over a connection that makes nothing on the
// broker, and within a limit: for the completion of shells.
func Peek(ctx context.Context, shell cli.Shell, limit time.Duration, read func(context.Context, *Pool) ([]string, error)) ([]string, error) {
	if OverHTTP(shell.Config) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		p := &Pool{}
		if err := p.openHTTP(ctx, shell); err != nil {
			return nil, err
		}
		found, err := read(ctx, p)
		return found, errors.Join(err, p.Close())
	}
	role, credential, err := credential(shell)
	if err != nil {
		return nil, err
	}
	endpoint := natsd.Endpoint{URL: shell.Config.Server}
	if shell.Config.Server == "" {
		if endpoint, err = natsd.Find(StoreDir(shell)); err != nil {
			return nil, err
		}
		if credential == nil {
			credential = endpoint.Options()
		}
	}
	secure, err := clientTLS(shell, endpoint.Certificate)
	if err != nil {
		return nil, err
	}
	options := slices.Concat(clientOptions("completion"), credential, secure, []nats.Option{nats.NoReconnect(), nats.Timeout(limit)})
	conn, err := natsd.Dial(endpoint.URL, options...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c, err := client.Open(ctx, conn, client.Config{Prefix: shell.Config.Prefix, Tenant: shell.Config.Tenant, Role: role, By: "cli"})
	if err != nil {
		return nil, err
	}
	return read(ctx, &Pool{Conn: conn, role: role, Client: c})
}
