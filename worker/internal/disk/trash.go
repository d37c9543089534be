package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Trash removes directories in an instant and deletes their files afterwards. It also
// deletes unreadable directories, those marked immutable if it has the right to, and
// trees deeper than any path.
type Trash struct {
	Dir   string
	count atomic.Int64
}

// Take renames path into the trash. A missing path is no error.
func (t *Trash) Take(path string) (string, error) {
	name := fmt.Sprintf("%s-%d-%d", filepath.Base(path), time.Now().UnixNano(), t.count.Add(1))
	to := filepath.Join(t.Dir, name)
	err := os.Rename(path, to)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return to, err
}

// Remove moves path into the trash and deletes it.
func (t *Trash) Remove(ctx context.Context, path string) error {
	taken, err := t.Take(path)
	if err != nil || taken == "" {
		return err
	}
	return t.delete(ctx, filepath.Base(taken))
}

// Empty deletes everything in the trash; an entry that cannot be deleted does not stop
// the others.
func (t *Trash) Empty(ctx context.Context) error {
	names, err := Names(t.Dir)
	for _, name := range names {
		err = errors.Join(err, t.delete(ctx, name))
	}
	return err
}

// delete removes one entry of the trash, with the directories that it moved up.
func (t *Trash) delete(ctx context.Context, name string) error {
	dir, err := os.Open(t.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	d := &deletion{top: int(dir.Fd()), prefix: name, pending: []string{name}}
	for len(d.pending) > 0 && err == nil {
		next := d.pending[len(d.pending)-1]
		d.pending = d.pending[:len(d.pending)-1]
		err = d.entry(ctx, d.top, next, 0)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(t.Dir, name), err)
	}
	return nil
}

type deletion struct {
	top     int // descriptor of the trash
	prefix  string
	pending []string // entries of the trash that still have to be deleted
	moved   int
}

// maxDescent bounds the open descriptors. A deeper directory is moved up to
// the trash itself and deleted from there.
const maxDescent = 64

func (d *deletion) entry(ctx context.Context, parent int, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	refused := unix.Unlinkat(parent, name, 0)
	if refused == unix.EPERM && unlockAt(parent, name) == nil {
		refused = unix.Unlinkat(parent, name, 0)
	}
	switch {
	case refused == nil || refused == unix.ENOENT:
		return nil
	case refused != unix.EISDIR && refused != unix.EPERM:
		return refused
	}
	fd, err := OpenDir(parent, name)
	switch err {
	case nil:
	case unix.ENOENT:
		return nil
	case unix.ENOTDIR:
		return refused
	default:
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if depth == maxDescent {
		return d.move(parent, name)
	}
	// Without write and search permission its entries could not be removed.
	err = unix.Fchmod(fd, 0o700)
	if err == unix.EPERM && unlockAt(parent, name) == nil {
		err = unix.Fchmod(fd, 0o700)
	}
	if err != nil {
		return err
	}
	for {
		names, readErr := dir.Readdirnames(1024)
		for _, child := range names {
			if err := d.entry(ctx, fd, child, depth+1); err != nil {
				return err
			}
		}
		if readErr != nil { // the removal below reports what is wrong
			break
		}
	}
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY {
		// Reading while removing may skip entries on some file systems.
		return d.again(ctx, parent, name, depth)
	}
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// again repeats a removal that met new entries, a bounded number of times.
func (d *deletion) again(ctx context.Context, parent int, name string, depth int) error {
	if d.moved++; d.moved > 1<<20 {
		return unix.ENOTEMPTY
	}
	return d.entry(ctx, parent, name, depth)
}

func (d *deletion) move(parent int, name string) error {
	d.moved++
	up := d.prefix + "." + strconv.Itoa(d.moved)
	// Only a user who may write in a directory can move it.
	err := ChmodAt(parent, name, 0o700)
	if err == nil {
		err = unix.Renameat(parent, name, d.top, up)
	}
	if err == unix.ENOENT {
		return nil // another sweeper was faster
	}
	if err != nil {
		return err
	}
	d.pending = append(d.pending, up)
	return nil
}

// RemoveAll removes a directory in place, including unreadable directories in it.
func RemoveAll(path string) error {
	if !Exists(path) {
		return nil
	}
	t := &Trash{Dir: filepath.Dir(path)}
	return t.delete(context.Background(), filepath.Base(path))
}
