// Package backupcmd has the commands backup and restore: the whole state of a pool in one
// file, and back.
package backupcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A Summary is the summary of a file for backup and restore.
type Summary struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"` // of the file
	backup.Manifest
}

var view = cli.View[Summary]{
	Header: []string{"FILE", "TAKEN", "JOBS", "MESSAGES", "SIZE"},
	Row: func(b Summary) []string {
		sum, messages := 0, uint64(0)
		for _, n := range b.Jobs {
			sum += n
		}
		for _, s := range b.Streams {
			messages += s.Messages
		}
		return []string{b.File, b.Taken.Local().Format(time.RFC3339), strconv.Itoa(sum), strconv.FormatUint(messages, 10), rounded(b.Bytes)}
	},
	ID: func(b Summary) string { return b.File },
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

// New returns the command backup.
func New(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE|DIR", Short: "Write the whole state of the pool to one file, while the pool runs", Args: cobra.ExactArgs(1),
		Long: `Backup writes all jobs, sessions, results, artifacts, dead letters and schedules,
and everything that commands have set, to one file: the pool as it is at one moment.
The pool may run meanwhile. In a directory the file is named after the time. The file
appears when it is complete; an interrupted backup leaves none.

The audit log of the pool gets an entry about it.

A backup does not contain settings files, secrets and credentials, or the files on the
disks of workers. It contains prompts and the output of agents, so only its owner may
read it.`,
		Example: `  penstock backup /var/backups/penstock/
  penstock backup pool.backup -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := pool.Open(cmd.Context(), shell, "backup", pool.Hooks{})
			if err != nil {
				return err
			}
			b, err := write(cmd.Context(), shell, p, args[0])
			if err == nil {
				err = note(cmd.Context(), p, b)
			}
			if err = errors.Join(err, p.Close()); err != nil {
				return err
			}
			return view.One(shell.Out, *shell.Format, b)
		},
	}
}

// note has the pool's audit log keep that there is a backup, and when it was taken.
// penstock doctor says how old the last one is.
func note(ctx context.Context, p *pool.Pool, b Summary) error {
	err := p.Audit.Append(ctx, operation.AuditEntry{
		Operation: audit.Backup, About: filepath.Base(b.File), Who: "penstock backup", Role: jobs.RoleOperator, Via: "bus", Outcome: audit.Done,
	})
	if err != nil {
		return fmt.Errorf("the backup %s is complete, and the audit log does not know of it: %w", b.File, err)
	}
	return nil
}

func write(ctx context.Context, shell cli.Shell, p *pool.Pool, path string) (b Summary, err error) {
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
	b.Manifest, err = backup.Write(ctx, p.Conn, f, backup.Config{Release: shell.Release, Prefix: shell.Config.Prefix, Progress: func(s backup.Stream) { tellStream(shell, s) }})
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
func tellStream(shell cli.Shell, s backup.Stream) {
	if *shell.Progress != cli.ProgressQuiet {
		shell.Err.Printf("penstock: %s: %d messages, %s\n", s.Name, s.Messages, rounded(int64(s.Bytes)))
	}
}
