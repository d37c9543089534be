package backupcmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/backup"
)

// NewCompact returns the command nats compact.
func NewCompact(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "compact", Short: "Write the store of the data directory anew, without what was removed from it", Args: cobra.NoArgs,
		Long: `A broker does not erase what it is told to remove: the bytes stay in its files until it
writes them anew, which may be never. Compact writes the whole store of the data
directory anew, and then removes the old files. What was removed is in none of the new
ones: a job that was purged, events that were too old.

The pool must not run: stop penstock serve. All that it keeps stays; it goes on as after a
restore. This takes twice the room of the store, for a while. Where a broker of --server
keeps the pool, restore a backup to it, or move its streams to other servers.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return compact(cmd.Context(), shell) },
	}
}

func compact(ctx context.Context, shell cli.Shell) (err error) {
	if shell.Config.Server != "" {
		return cli.Usage("penstock backup, then penstock restore --replace", "nats compact: it is for the broker of a data directory, and --server names another one")
	}
	store := pool.StoreDir(shell)
	if err := mustRest(shell, store); err != nil {
		return err
	}
	// Beside the store, with its rights, and not where others keep backups.
	f, err := os.OpenFile(store+".compacting", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("nats compact: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			err = fmt.Errorf("nats compact: %w", err)
		}
	}()
	err = atBroker(shell, store, "compact", func(p *pool.Pool) error {
		_, err := backup.Write(ctx, p.Conn, f, backup.Config{Release: shell.Release, Prefix: shell.Config.Prefix})
		return err
	})
	if err != nil {
		return pool.Cause(ctx, err)
	}
	whole, err := backup.Open(f.Name())
	if err != nil {
		return err
	}
	return errors.Join(replaceStore(ctx, shell, whole), whole.Close())
}

// mustRest refuses a store that is in use, and one that is not there.
func mustRest(shell cli.Shell, store string) error {
	if _, err := os.Stat(store); err != nil {
		return cli.Fail(cli.ExitNotFound, "check --data", "nats compact: %w", err)
	}
	_, err := natsd.Find(store)
	if err == nil {
		return cli.Fail(cli.ExitUnexpected, "stop it first", "nats compact: a pool runs on %s", shell.Config.Data)
	}
	if !errors.Is(err, natsd.ErrNotRunning) {
		return fmt.Errorf("nats compact: %w", err)
	}
	return nil
}
