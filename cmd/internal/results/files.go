package results

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/cmd/internal/filelock"
	"github.com/penstock-run/penstock/jobs"
)

// files reads and writes the files of a directory that others may write, too: no
// name leads out of it, and no file is there in part.
type files struct {
	dir  string
	root *os.Root
}

const tmpPrefix = ".tmp-"

// write puts a file in place whole or not at all, and on disk before it
// returns: the file, then its name.
func (d files) write(name string, fill func(io.Writer) error) error {
	// The name is new each time: two writers of one file must not share it.
	tmp := path.Join(path.Dir(name), tmpPrefix+jobs.NewID())
	err := d.fill(tmp, fill)
	if err == nil {
		err = d.root.Rename(tmp, name)
	}
	if err != nil {
		// Nothing more can be done about a temporary file that stays: the
		// next Open removes it.
		_ = d.root.Remove(tmp)
		return fmt.Errorf("write %s: %w", d.path(name), err)
	}
	return d.syncDir(path.Dir(name))
}

func (d files) fill(name string, fill func(io.Writer) error) (err error) {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 64<<10)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

func (d files) syncDir(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return fmt.Errorf("sync %s: %w", d.path(name), err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.path(name), err)
	}
	return nil
}

// openRegular opens a regular file for reading and refuses any other. Opening does
// not wait, so a pipe in its place cannot hang us.
func (d files) openRegular(name string) (*os.File, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path(name), err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", d.path(name))
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path(name), err)
	}
	return f, nil
}

// makeDirs creates the directories of the files, or checks that they are
// directories and not links to somewhere else.
func (d files) makeDirs(names ...string) error {
	for _, name := range names {
		if err := d.root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create %s: %w", d.path(name), err)
		}
		info, err := d.root.Lstat(name)
		if err != nil {
			return fmt.Errorf("create %s: %w", d.path(name), err)
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory: remove it, or choose another --out", d.path(name))
		}
	}
	return nil
}

// sweep removes the temporary files that a program which died left behind.
func (d files) sweep(names ...string) error {
	for _, name := range names {
		entries, err := fs.ReadDir(d.root.FS(), name)
		if err != nil {
			return fmt.Errorf("list %s: %w", d.path(name), err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), tmpPrefix) {
				continue
			}
			if err := d.root.Remove(path.Join(name, e.Name())); err != nil {
				return fmt.Errorf("remove %s: %w", d.path(path.Join(name, e.Name())), err)
			}
		}
	}
	return nil
}

func (d files) path(name string) string { return filepath.Join(d.dir, name) }

func patchName(item string) string { return "patches/" + item + ".patch" }
func logName(item string) string   { return "logs/" + item + ".jsonl" }

const lockName = ".lock"

// A LockedError says that another program works in the directory.
type LockedError struct {
	Dir string
	PID int // 0: not known
}

func (e *LockedError) Error() string {
	by := filelock.HeldError{PID: e.PID}
	return fmt.Sprintf("%s is in use by %s: wait for it, or choose another directory with --out", e.Dir, by.Holder())
}

// lock keeps other programs out. The kernel drops the lock with the process,
// so nothing is left behind by a kill -9.
func (d files) lock() (*os.File, error) {
	f, err := d.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", d.dir, err)
	}
	err = filelock.Take(f)
	if held, ok := errors.AsType[*filelock.HeldError](err); ok {
		return nil, errors.Join(&LockedError{Dir: d.dir, PID: held.PID}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", d.dir, err), f.Close())
	}
	return f, nil
}

// copyTo copies until the end of r, or of ctx.
func copyTo(ctx context.Context, w io.Writer, r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
