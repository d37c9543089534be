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
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A Summary is the summary of a file for backup and restore.
type Summary struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"` // of the file
	// Verified: it was restored to a broker of its own, and was the same there.
	Verified bool `json:"verified,omitempty"`
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
	var plan plan
	cmd := &cobra.Command{
		Annotations: servicelog.Mark(),
		Use:         "backup FILE|DIR", Short: "Write the whole state of the pool to one file, while the pool runs; once, or repeatedly", Args: cobra.ExactArgs(1),
		Long: `Backup writes all jobs, sessions, results, artifacts, dead letters and schedules,
and everything that commands have set, to one file: the pool as it is at one moment.
The pool may run meanwhile. In a directory the file is named after the time. The file
appears when it is complete; an interrupted backup leaves none.

With --verify the file is restored first, to a broker that exists for that only, and each
message there is compared with it. It appears only if that succeeds. This takes as much
room in the directory as the pool does, for a while.

With --every it goes on until it is stopped, and verifies each backup. The first one is
due when the newest one in the directory is that old. After a failure it tries again,
after 5 minutes at most. With --keep and --keep-for it removes older backups, after one that
succeeded, and never the newest one. One process at a time may work in a directory.

The audit log of the pool gets an entry about each backup, also about one that failed.

A backup does not contain settings files, secrets and credentials, or the files on the
disks of workers. It contains prompts and the output of agents, so only its owner may
read it.`,
		Example: `  penstock backup /var/backups/penstock/
  penstock backup pool.backup -o json
  penstock backup /var/backups/penstock/ --every 24h --keep 14`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("verify") {
				plan.verify = plan.every > 0
			}
			return run(cmd.Context(), shell, args[0], plan)
		},
	}
	flags := cmd.Flags()
	flags.Var(&plan.every, "every", "take a backup into the directory each time this has passed, until it is stopped: 24h")
	flags.IntVar(&plan.keep, "keep", 0, "how many backups the directory keeps, the newest ones; 0 for all")
	flags.Var(&plan.keepFor, "keep-for", "for how long the directory keeps backups: 30d")
	flags.BoolVar(&plan.verify, "verify", false, "restore the backup to a broker of its own and compare, before it gets its name (default with --every: true)")
	return cmd
}

// A plan says what is done beside writing backups.
type plan struct {
	every, keepFor input.Span
	keep           int // 0: all
	verify         bool
}

func run(ctx context.Context, shell cli.Shell, path string, p plan) (err error) {
	if p.keep < 0 {
		return cli.Usage("0 keeps all", "backup: --keep %d is less than 0", p.keep)
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		if p.every > 0 || p.keep > 0 || p.keepFor > 0 {
			return cli.Usage("name a directory that exists: mkdir "+path, "backup: --every, --keep and --keep-for are for a directory, and %s is none", path)
		}
		b, err := take(ctx, shell, target{file: path, temporary: ".penstock-backup-*"}, p)
		if err != nil {
			return err
		}
		return view.One(shell.Out, *shell.Format, b)
	}
	dir, err := openDirectory(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	if p.every > 0 {
		return repeat(ctx, shell, dir, p)
	}
	b, err := dir.add(ctx, shell, p)
	if err != nil {
		return err
	}
	return view.One(shell.Out, *shell.Format, b)
}

// A target is where a backup is written: first under a temporary name in the directory of
// the file.
type target struct{ file, temporary string }

// take writes one backup, and has the audit log keep what came of it.
func take(ctx context.Context, shell cli.Shell, to target, plan plan) (Summary, error) {
	p, err := pool.Open(ctx, shell, "backup", pool.Hooks{})
	if err != nil {
		return Summary{}, err
	}
	b, err := write(ctx, shell, p, to, plan)
	switch {
	case err == nil:
		name := audit.Backup
		if b.Verified {
			name = audit.BackupVerified
		}
		if err = note(ctx, p, name, b.File, audit.Done); err != nil {
			err = fmt.Errorf("the backup %s is complete, and the audit log does not know of it: %w", b.File, err)
		}
	case ctx.Err() == nil:
		err = errors.Join(err, note(ctx, p, audit.BackupFailed, to.file, string(jobs.Code(err))))
	}
	return b, errors.Join(err, p.Close())
}

// noteLimit bounds how long an entry of the audit log is waited for.
const noteLimit = 10 * time.Second

// note has the pool's audit log keep that there is a backup, or that one failed, and when.
// penstock doctor and the metrics of dispatchers say how old the last one is.
// It does so also if the command is interrupted just then.
func note(ctx context.Context, p *pool.Pool, operationName, file, outcome string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteLimit)
	defer cancel()
	return p.Audit.Append(ctx, operation.AuditEntry{
		Operation: operationName, About: filepath.Base(file), Who: "penstock backup", Role: jobs.RoleOperator, Via: "bus", Outcome: outcome,
	})
}

func write(ctx context.Context, shell cli.Shell, p *pool.Pool, to target, plan plan) (b Summary, err error) {
	path, err := filepath.Abs(to.file)
	if err != nil {
		return b, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), to.temporary) // made with mode 0600
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
	if plan.verify {
		if err := verify(ctx, shell, f.Name()); err != nil {
			return b, err
		}
		b.Verified = true
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
