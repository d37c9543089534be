package backupcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/recovery"
)

// NewRestore returns the command restore.
func NewRestore(shell cli.Shell) *cobra.Command {
	var replace, dry bool
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Restore a pool from a backup", Args: cobra.ExactArgs(1),
		Long: `Restore brings the pool back to the moment of the backup. Jobs that waited or ran
then continue, finished jobs have their results, and the keys of jobs are known.
Restore first checks the whole file. The pool must not run: stop penstock serve and
all workers. The broker of a data directory is replaced at once when everything is
restored; a broker of --server is filled stream by stream, the jobs last.

Restore refuses a pool that is not empty, unless --replace is given, which removes
its contents for good.`,
		Example: `  penstock restore /var/backups/penstock/penstock-20261122T020000Z.backup
  penstock restore pool.backup --dry-run
  penstock restore pool.backup --server nats://a:4222,nats://b:4222,nats://c:4222 --replicas 3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := backup.Open(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return cli.Fail(cli.ExitNotFound, "", "restore: %w", err)
			}
			if err != nil {
				return cli.Usage("use another file: nothing was changed", "restore: %w", err)
			}
			defer f.Close()
			if f.Prefix != shell.Config.Prefix {
				return cli.Usage("set prefix: "+f.Prefix, "restore: the backup is of a pool with the prefix %s, and the setting is %s", f.Prefix, shell.Config.Prefix)
			}
			if !dry {
				if err := restoreFile(shell, cmd, f, replace); err != nil {
					return err
				}
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			return view.One(shell.Out, *shell.Format, Summary{File: args[0], Bytes: info.Size(), Manifest: f.Manifest})
		},
	}
	cmd.Flags().AddFlagSet(pool.LayoutFlags(shell))
	cmd.Flags().BoolVar(&replace, "replace", false, "remove the present contents of the pool")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only check the file, and list its contents")
	return cmd
}

func restoreFile(shell cli.Shell, cmd *cobra.Command, f *backup.File, replace bool) error {
	ctx := cmd.Context()
	if shell.Config.Server != "" {
		return restoreThere(ctx, shell, f, replace, pool.WantedLayout(shell, cmd))
	}
	_, err := natsd.Find(pool.StoreDir(shell))
	switch {
	case err == nil:
		return cli.Fail(cli.ExitUnexpected, "stop it, and all workers: their state will be out of date", "restore: a pool runs on %s", shell.Config.Data)
	case !errors.Is(err, natsd.ErrNotRunning):
		return fmt.Errorf("restore: %w", err)
	}
	if !replace {
		if err := atBroker(shell, pool.StoreDir(shell), "restore", func(p *pool.Pool) error { return vacant(ctx, p) }); err != nil {
			return err
		}
	}
	if err := replaceStore(ctx, shell, f); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// replaceStore puts a store with the contents of a backup in the place of that of the data
// directory, whose broker does not run: all at once, when it is complete.
func replaceStore(ctx context.Context, shell cli.Shell, f *backup.File) error {
	fresh := pool.StoreDir(shell) + ".restoring"
	if err := natsd.Beside(pool.StoreDir(shell), fresh); err != nil {
		return err
	}
	cfg := *shell.Config
	cfg.Replicas = 1 // the backup may be one of a cluster
	shell.Config = &cfg
	err := atBroker(shell, fresh, "restore", func(p *pool.Pool) error { return fill(ctx, shell, p, f) })
	if err == nil {
		err = natsd.Adopt(pool.StoreDir(shell), fresh)
	}
	if err != nil {
		return errors.Join(pool.Cause(ctx, err), os.RemoveAll(fresh))
	}
	return nil
}

// fill brings a backup back on a broker that holds nothing.
func fill(ctx context.Context, shell cli.Shell, p *pool.Pool, f *backup.File) error {
	if err := f.Restore(ctx, p.Conn, shell.Config.Replicas, func(s backup.Stream) { tellStream(shell, s) }); err != nil {
		return err
	}
	return conclude(ctx, shell, p, f, func(loss recovery.Loss) { shell.Err.Printf("penstock: repaired: %s\n", loss) })
}

// conclude finishes, on a broker to which a backup was restored, what workers had just begun to
// finish, and tells what had to be repaired.
func conclude(ctx context.Context, shell cli.Shell, p *pool.Pool, f *backup.File, repaired func(recovery.Loss)) error {
	if err := p.Bind(ctx, shell, pool.Hooks{}); err != nil {
		return err
	}
	if err := p.Queue.Conclude(ctx, f.Taken.Add(-time.Hour)); err != nil {
		return err
	}
	lost, err := p.Dispatcher.Audit(ctx, true)
	for _, loss := range lost {
		repaired(loss)
	}
	return err
}

// atBroker opens a directory's broker for one operation, without serving it.
func atBroker(shell cli.Shell, dir, owner string, do func(*pool.Pool) error) error {
	p, err := pool.OpenDirectory(shell, dir, owner)
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.Close())
}

func vacant(ctx context.Context, p *pool.Pool) error {
	found, err := backup.Occupied(ctx, p.Conn)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return cli.Fail(cli.ExitUnexpected, "back it up, and use --replace to remove its contents", "restore: the pool is not empty: %v", found)
	}
	return nil
}

// copyWithin is how long the servers of a cluster have to copy what one of them
// was sent.
const copyWithin = 10 * time.Minute

// restoreThere restores to an external server.
func restoreThere(ctx context.Context, shell cli.Shell, f *backup.File, replace bool, wanted layout.Config) (err error) {
	p, err := pool.Reach(shell, "restore")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if running, err := backup.Running(ctx, p.Conn); err != nil || len(running) > 0 {
		return cmp.Or(err, cli.Fail(cli.ExitUnexpected, "stop them: their state will be out of date", "restore: the pool runs: %v", running))
	}
	if !replace {
		if err := vacant(ctx, p); err != nil {
			return err
		}
	}
	if err := backup.Clear(ctx, p.Conn); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := fill(ctx, shell, p, f); err != nil {
		return fmt.Errorf("restore: %w: it is incomplete: repeat it with --replace", err)
	}
	// Until the others have it, all of it ends with one server.
	return pool.AwaitReplicas(ctx, shell, p, wanted, copyWithin)
}
