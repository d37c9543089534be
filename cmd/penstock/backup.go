package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/layout"
)

// A backupFile is the summary of a file for backup and restore.
type backupFile struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"` // of the file
	backup.Manifest
}

var backupView = cli.View[backupFile]{
	Header: []string{"FILE", "TAKEN", "JOBS", "MESSAGES", "SIZE"},
	Row: func(b backupFile) []string {
		sum, messages := 0, uint64(0)
		for _, n := range b.Jobs {
			sum += n
		}
		for _, s := range b.Streams {
			messages += s.Messages
		}
		return []string{b.File, b.Taken.Local().Format(time.RFC3339), strconv.Itoa(sum), strconv.FormatUint(messages, 10), rounded(b.Bytes)}
	},
	ID: func(b backupFile) string { return b.File },
}

// rounded is a size for people.
func rounded(n int64) string {
	const unit = 1024
	text, f := "B", float64(n)
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < unit {
			break
		}
		text, f = next, f/unit
	}
	return fmt.Sprintf("%.1f %s", f, text)
}

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE|DIR", Short: "Write the whole state of the pool to one file, while the pool runs", Args: cobra.ExactArgs(1),
		Long: `Backup writes all jobs, sessions, results, artifacts, dead letters and schedules,
and everything that commands have set, to one file: the pool as it is at one moment.
The pool may run meanwhile. In a directory the file is named after the time. The file
appears when it is complete; an interrupted backup leaves none.

A backup does not contain settings files, secrets and credentials, or the files on the
disks of workers. It contains prompts and the output of agents, so only its owner may
read it.`,
		Example: `  penstock backup /var/backups/penstock/
  penstock backup pool.backup -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := pool.Open(cmd.Context(), a.shell(), "backup", pool.Hooks{})
			if err != nil {
				return err
			}
			b, err := a.backup(cmd.Context(), p, args[0])
			if err = errors.Join(err, p.Close()); err != nil {
				return err
			}
			return backupView.One(a.out, a.format, b)
		},
	}
}

func (a *app) backup(ctx context.Context, p *pool.Pool, path string) (b backupFile, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "penstock-"+time.Now().UTC().Format("20060102T150405Z")+".backup")
	}
	if path, err = filepath.Abs(path); err != nil {
		return b, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".penstock-backup-*") // made with mode 0600
	if err != nil {
		return b, cli.Usage("", "backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("backup: %w", errors.Join(err, f.Close(), os.Remove(f.Name())))
		}
	}()
	b.File = path
	b.Manifest, err = backup.Write(ctx, p.Conn, f, backup.Config{Release: a.shell().Release, Prefix: a.cfg.Prefix, Progress: func(s backup.Stream) { a.tellStream(s) }})
	if err != nil {
		return b, pool.Cause(ctx, err)
	}
	info, err := f.Stat()
	if err != nil {
		return b, err
	}
	b.Bytes = info.Size()
	// On the disk first: a power cut shall leave a whole file, or none.
	if err := f.Sync(); err != nil {
		return b, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return b, err
	}
	return b, errors.Join(f.Close(), syncParent(path))
}

func syncParent(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// tellStream says which stream was just read, or written.
func (a *app) tellStream(s backup.Stream) {
	if a.progress != cli.ProgressQuiet {
		a.err.Printf("penstock: %s: %d messages, %s\n", s.Name, s.Messages, rounded(int64(s.Bytes)))
	}
}

func (a *app) restoreCommand() *cobra.Command {
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
			if f.Prefix != a.cfg.Prefix {
				return cli.Usage("set prefix: "+f.Prefix, "restore: the backup is of a pool with the prefix %s, and the setting is %s", f.Prefix, a.cfg.Prefix)
			}
			if !dry {
				if err := a.restoreFile(cmd, f, replace); err != nil {
					return err
				}
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			return backupView.One(a.out, a.format, backupFile{args[0], info.Size(), f.Manifest})
		},
	}
	cmd.Flags().AddFlagSet(a.layoutFlags())
	cmd.Flags().BoolVar(&replace, "replace", false, "remove the present contents of the pool")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only check the file, and list its contents")
	return cmd
}

func (a *app) restoreFile(cmd *cobra.Command, f *backup.File, replace bool) error {
	ctx := cmd.Context()
	if a.cfg.Server != "" {
		return a.restoreThere(ctx, f, replace, a.layout(cmd))
	}
	_, err := natsd.Find(pool.StoreDir(a.shell()))
	switch {
	case err == nil:
		return cli.Fail(cli.ExitUnexpected, "stop it, and all workers: their state will be out of date", "restore: a pool runs on %s", a.cfg.Data)
	case !errors.Is(err, natsd.ErrNotRunning):
		return fmt.Errorf("restore: %w", err)
	}
	if !replace {
		if err := a.atBroker(pool.StoreDir(a.shell()), func(p *pool.Pool) error { return vacant(ctx, p) }); err != nil {
			return err
		}
	}
	fresh := pool.StoreDir(a.shell()) + ".restoring"
	if err := natsd.Beside(pool.StoreDir(a.shell()), fresh); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	a.cfg.Replicas = 1 // the backup may be one of a cluster
	err = a.atBroker(fresh, func(p *pool.Pool) error { return a.fill(ctx, p, f) })
	if err == nil {
		err = natsd.Adopt(pool.StoreDir(a.shell()), fresh)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", errors.Join(pool.Cause(ctx, err), os.RemoveAll(fresh)))
	}
	return nil
}

// fill brings a backup back on a broker that holds nothing, and finishes what
// workers had just begun to finish.
func (a *app) fill(ctx context.Context, p *pool.Pool, f *backup.File) error {
	if err := f.Restore(ctx, p.Conn, a.cfg.Replicas, func(s backup.Stream) { a.tellStream(s) }); err != nil {
		return err
	}
	if err := p.Bind(ctx, a.shell(), pool.Hooks{}); err != nil {
		return err
	}
	if err := p.Queue.Conclude(ctx, f.Taken.Add(-time.Hour)); err != nil {
		return err
	}
	lost, err := p.Dispatcher.Audit(ctx, true)
	for _, loss := range lost {
		a.err.Printf("penstock: repaired: %s\n", loss)
	}
	return err
}

// atBroker opens a directory's broker for one operation, without serving it.
func (a *app) atBroker(dir string, do func(*pool.Pool) error) error {
	p, err := pool.OpenDirectory(a.shell(), dir, "restore")
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
func (a *app) restoreThere(ctx context.Context, f *backup.File, replace bool, wanted layout.Config) (err error) {
	p, err := pool.Reach(a.shell(), "restore")
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
	if err := a.fill(ctx, p, f); err != nil {
		return fmt.Errorf("restore: %w: it is incomplete: repeat it with --replace", err)
	}
	// Until the others have it, all of it ends with one server.
	return a.awaitReplicas(ctx, p, wanted, copyWithin)
}
