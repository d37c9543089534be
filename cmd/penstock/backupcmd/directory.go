package backupcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/filelock"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
)

const (
	// stamped is the name of a backup in a directory: the time at which it began.
	stamped = "penstock-20060102T150405Z.backup"
	// temporary is the name of what is not a backup yet, a file or a scratch store. The
	// holder of the lock removes what a killed process has left.
	temporary = ".penstock-unfinished-"
	lockName  = ".penstock-backup.lock"
)

// A directory keeps backups. This process is the only one that works there.
type directory struct {
	path string
	lock *os.File
}

func openDirectory(path string) (*directory, error) {
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, cli.Usage("", "backup: %w", err)
	}
	d := &directory{path, f}
	err = filelock.Take(f)
	if held, ok := errors.AsType[*filelock.HeldError](err); ok {
		err = cli.Fail(cli.ExitUnexpected, "stop that, use another directory, or name a file", "backup: directory %s is in use by %s", path, held.Holder())
	} else if err == nil {
		err = d.sweep()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

func (d *directory) close() error { return d.lock.Close() }

// sweep removes what a process has left that was killed.
func (d *directory) sweep() error {
	left, err := filepath.Glob(filepath.Join(d.path, temporary+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// A kept is a backup in a directory.
type kept struct {
	name  string
	begun time.Time
}

// backups lists the backups, the newest first. Files with other names are the user's own.
func (d *directory) backups() ([]kept, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list the backups: %w", err)
	}
	var all []kept
	for _, e := range entries {
		at, err := time.Parse(stamped, e.Name())
		if err == nil && e.Type().IsRegular() && strings.HasSuffix(e.Name(), filepath.Ext(stamped)) {
			all = append(all, kept{e.Name(), at})
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Compare(b.name, a.name) })
	return all, nil
}

// add takes a backup, and removes those that are not to be kept any longer.
func (d *directory) add(ctx context.Context, shell cli.Shell, p plan) (Summary, error) {
	to := target{file: filepath.Join(d.path, time.Now().UTC().Format(stamped)), temporary: temporary + "*"}
	b, err := take(ctx, shell, to, p)
	if err != nil {
		return b, err
	}
	return b, d.prune(shell, p)
}

// prune removes the backups that a plan does not keep. The newest one stays, however old.
func (d *directory) prune(shell cli.Shell, p plan) error {
	all, err := d.backups()
	if err != nil {
		return err
	}
	for i, b := range all {
		many := p.keep > 0 && i >= p.keep
		old := p.keepFor > 0 && i > 0 && time.Since(b.begun) > time.Duration(p.keepFor)
		if !many && !old {
			continue
		}
		if err := os.Remove(filepath.Join(d.path, b.name)); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
		shell.Progressf("removed %s, which is not to be kept any longer", b.name)
	}
	return nil
}

// retryWithin bounds the wait after a backup that failed.
const retryWithin = 5 * time.Minute

// repeat takes backups until ctx ends. It returns the error of the last one, if that failed.
func repeat(ctx context.Context, shell cli.Shell, d *directory, p plan) error {
	format := *shell.Format
	switch format { // of many values that come one by one
	case cli.Table:
		format = cli.IDs
	case cli.JSON:
		format = cli.JSONL
	}
	wait, err := d.due(time.Duration(p.every))
	if err != nil {
		return err
	}
	var failed error
	for {
		shell.Progressf("next backup into %s at %s", d.path, time.Now().Add(wait).Format(time.RFC3339))
		select {
		case <-ctx.Done():
			return failed
		case <-time.After(wait):
		}
		b, err := d.add(ctx, shell, p)
		if ctx.Err() != nil {
			return failed
		}
		if failed = err; err == nil {
			if err := view.One(shell.Out, format, b); err != nil {
				return err
			}
			if wait, failed = d.due(time.Duration(p.every)); failed == nil {
				continue
			}
		}
		wait = min(time.Duration(p.every), retryWithin)
		servicelog.Say(shell, servicelog.Notice{
			Level: slog.LevelError, Text: fmt.Sprintf("%v; the backups of before are kept", failed),
			Message: "backup failed", Attrs: []slog.Attr{slog.Any("err", failed)},
		})
	}
}

// due returns the time until the next backup. It counts from the newest one that is there, so that a
// restart takes none before its time.
func (d *directory) due(every time.Duration) (time.Duration, error) {
	all, err := d.backups()
	if err != nil || len(all) == 0 {
		return 0, err
	}
	// A clock that was set back must not stop the backups.
	return min(max(0, every-time.Since(all[0].begun)), every), nil
}
