package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// RunFile runs a NATS server as its own configuration file says, and nothing
// of ours: one of a cluster, or the one that takes over an embedded server's
// directory. It calls ready once others can connect, and ends with ctx, or with a
// [StuckError], after which the process has to end.
func RunFile(ctx context.Context, file string, said *slog.Logger, ready func(address string)) (err error) {
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	opts.NoSigs, opts.DisableJetStreamBanner = true, true
	if opts.JetStream {
		// A server does not look whether another one uses its directory.
		if opts.StoreDir == "" {
			return fmt.Errorf("%s: jetstream has no store_dir: what is kept in a temporary directory is lost", file)
		}
		if err := os.MkdirAll(opts.StoreDir, 0o700); err != nil {
			return fmt.Errorf("open server directory: %w", err)
		}
		lock, lockErr := takeLock(opts.StoreDir, "nats server")
		if lockErr != nil {
			return lockErr
		}
		defer func() { err = errors.Join(err, lock.release()) }()
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("start the server of %s: %w", file, err)
	}
	log := &logger{log: said}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	defer func() {
		if _, stuck := errors.AsType[*StuckError](err); !stuck {
			err = errors.Join(err, within("stop", func() { stop(srv) }))
		}
	}()
	for !srv.ReadyForConnections(100 * time.Millisecond) {
		if why := log.fatal(); why != "" {
			return fmt.Errorf("start the server of %s: %s", file, why)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	ready(srv.ClientURL())
	return awaitStuck(ctx, srv)
}
