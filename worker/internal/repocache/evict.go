package repocache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// An InUse lists the directories of bases and layers that workspaces were made
// from, be their owners alive or not.
type InUse func() (map[string]bool, error)

// Evict removes unused bases and layers, the oldest first, until there is enough room,
// and then mirrors without bases. It returns how many it removed. Removed entries are
// fetched and made again when a job needs them.
func (c *Cache) Evict(ctx context.Context, used InUse, enough func() bool) (int, error) {
	errs := []error{c.cfg.Trash.Empty(ctx)}
	all, free, err := c.list(used)
	errs = append(errs, err)
	patient, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	removed := 0
	for _, old := range slices.Backward(all) {
		if enough() || ctx.Err() != nil {
			return removed, errors.Join(errs...)
		}
		if !free[old.dir] {
			continue
		}
		gone, err := c.evict(patient, old, false)
		if gone {
			removed++
		}
		errs = append(errs, err, c.cfg.Trash.Empty(ctx))
	}
	mirrors, err := c.mirrors()
	errs = append(errs, err)
	for _, dir := range mirrors {
		if enough() || ctx.Err() != nil {
			break
		}
		errs = append(errs, c.sweepMirror(dir, 0), c.cfg.Trash.Empty(ctx))
	}
	return removed, errors.Join(errs...)
}

// A cached is a base, or a layer, as the evictor sees it.
type cached struct {
	dir  string
	base string // of a layer: the directory of its base, with which it goes
	used time.Time
	size int64
	over int // of a base: how many templates its own is built on; of a layer: its base's
}

// A Retention says what a sweep keeps: entries that were used within age, the newest up
// to so many bytes.
type Retention struct {
	Age   time.Duration
	Bytes int64
}

// sweepPatience is how long one call waits in all for mirrors in which others fetch or build.
// A pool whose jobs all have commits of their own does that nearly all the time, and
// would exceed its limit without end if a sweep passed over such mirrors.
const sweepPatience = 10 * time.Second

// Sweep removes bases and layers that were not used for long, and the oldest of the
// rest as long as they exceed the limit. With dry it removes nothing, and counts what
// it would remove.
func (c *Cache) Sweep(ctx context.Context, used InUse, keep Retention, dry bool) (bases, layers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	mirrors, err := c.mirrors()
	errs := []error{err}
	for _, dir := range mirrors {
		if !dry {
			errs = append(errs, c.sweepMirror(dir, keep.Age))
		}
	}
	all, free, err := c.list(used)
	errs = append(errs, err)
	var total int64
	gone := map[string]bool{}
	for _, old := range all {
		total += old.size
		if !gone[old.base] {
			if !free[old.dir] || time.Since(old.used) < keep.Age && total <= keep.Bytes {
				continue
			}
			taken, err := c.evict(ctx, old, dry)
			errs = append(errs, err)
			if !taken {
				continue
			}
		}
		gone[old.dir] = true
		total -= old.size
		if old.base == "" {
			bases++
		} else {
			layers++
		}
	}
	return bases, layers, errors.Join(errs...)
}

// mirrors lists the directories of all mirrors.
func (c *Cache) mirrors() ([]string, error) {
	keys, err := disk.Names(filepath.Join(c.cfg.Dir, "mirrors"))
	for i, key := range keys {
		keys[i] = filepath.Join(c.cfg.Dir, "mirrors", key)
	}
	return keys, err
}

// list returns all bases and layers, the newest first and each base before its
// layers and before the bases whose templates lie on its own, and says which of
// them no workspace was made from. An error of one mirror does not keep the rest.
func (c *Cache) list(used InUse) (all []cached, free map[string]bool, err error) {
	needed, err := used()
	if err != nil {
		return nil, nil, err
	}
	mirrors, err := c.mirrors()
	errs, free := []error{err}, map[string]bool{}
	for _, dir := range mirrors {
		found, err := listCached(filepath.Join(dir, "bases"))
		all, errs = append(all, found...), append(errs, err)
	}
	for _, b := range all {
		free[b.dir] = !needed[b.dir]
	}
	belowLast(all)
	slices.SortStableFunc(all, func(a, b cached) int { return cmp.Or(b.used.Compare(a.used), a.over-b.over) })
	return all, free, errors.Join(errs...)
}

// evict removes entries that are not held. It removes a base under the mirror's lock,
// since the process that has just built one does not hold the base yet; it waits for
// that until ctx ends.
func (c *Cache) evict(ctx context.Context, old cached, dry bool) (_ bool, err error) {
	if old.base == "" {
		mirror, err := disk.WaitLock(ctx, filepath.Join(filepath.Dir(filepath.Dir(old.dir)), "lock"), syscall.LOCK_EX)
		if err != nil && errors.Is(err, context.Cause(ctx)) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, mirror.Release()) }()
	}
	l, err := disk.TryLock(old.dir+".lock", syscall.LOCK_EX)
	if errors.Is(err, disk.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if supports, err := (&Base{Dir: old.dir}).supports(); old.base == "" && (supports || err != nil) {
		return false, errors.Join(err, l.Release())
	}
	if dry {
		return true, l.Release()
	}
	_, err = c.cfg.Trash.Take(old.dir)
	return err == nil, errors.Join(err, l.Remove())
}

// sweepMirror removes unfinished bases, and a mirror without bases that was not used
// for age. Only the holder of the mirror's lock builds.
func (c *Cache) sweepMirror(dir string, age time.Duration) (err error) {
	l, err := disk.TryLock(filepath.Join(dir, "lock"), syscall.LOCK_EX)
	if errors.Is(err, disk.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Release()) }()
	remove := []string{"new-mirror", "new-base"}
	info, err := l.File.Stat()
	left, listing := entriesOf(filepath.Join(dir, "bases"))
	if err := errors.Join(err, listing); err != nil {
		return err
	}
	if len(left) == 0 && time.Since(info.ModTime()) >= age {
		remove = append(remove, "mirror.git")
	}
	// Templates are built under the mirror's lock as well.
	var errs []error
	for _, b := range left {
		remove = append(remove, filepath.Join("bases", b.Name(), "template.new"))
		errs = append(errs, c.sweepLayers(filepath.Join(dir, "bases", b.Name(), "layers")))
	}
	for _, name := range remove {
		_, err := c.cfg.Trash.Take(filepath.Join(dir, name))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepLayers removes layers that were unfinished when their maker died, and the locks
// of missing layers.
func (c *Cache) sweepLayers(dir string) error {
	names, err := disk.Names(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, name := range names {
		key, isLock := strings.CutSuffix(name, ".lock")
		if !isLock {
			continue
		}
		if _, missing := readLayer(filepath.Join(dir, key)); missing == nil {
			continue
		}
		l, err := disk.TryLock(filepath.Join(dir, name), syscall.LOCK_EX)
		if errors.Is(err, disk.ErrLocked) {
			continue
		}
		if err == nil {
			_, err = c.cfg.Trash.Take(filepath.Join(dir, key+".new"))
			err = errors.Join(err, l.Remove())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// entriesOf lists the entries with a lock beside them, without the locks.
func entriesOf(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return !e.IsDir() || strings.HasSuffix(e.Name(), ".lock") || strings.HasSuffix(e.Name(), ".new")
	}), err
}

// listCached lists the bases in a directory, each before its layers.
func listCached(dir string) ([]cached, error) {
	entries, err := entriesOf(dir)
	if err != nil {
		return nil, err
	}
	var all []cached
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil {
			continue
		}
		b := cached{dir: filepath.Join(dir, e.Name()), used: info.ModTime()}
		if b.size, err = sizeOf(b.dir); err != nil {
			return all, fmt.Errorf("measure %s: %w", b.dir, err)
		}
		layers, err := listLayers(b)
		if err != nil {
			return all, err
		}
		all = append(append(all, b), layers...)
	}
	return all, nil
}

func listLayers(b cached) ([]cached, error) {
	dir := filepath.Join(b.dir, "layers")
	entries, err := entriesOf(dir)
	var all []cached
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil {
			continue
		}
		l := cached{dir: filepath.Join(dir, e.Name()), base: b.dir, used: info.ModTime()}
		if b.used.Before(l.used) {
			l.used = b.used
		}
		known, damaged := readLayer(l.dir)
		if damaged == nil {
			l.size = known.Bytes
		}
		all = append(all, l)
	}
	return all, err
}

// sizeOf sums up the files of a base, without its layers.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == filepath.Join(dir, "layers"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		var st unix.Stat_t
		err = unix.Lstat(name, &st)
		if err == nil {
			size += st.Size / int64(max(1, st.Nlink)) // bases share packs
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // another process evicts it
	}
	return size, err
}
