package workspace

import (
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
)

// Swept is what a sweep removed.
type Swept struct {
	Workspaces []string // ids
	Bases      int
}

// Sweep removes what processes that are gone have left, after Config.Salvage
// has seen their workspaces, and bases that nobody needs. It touches nothing that is in use, so any number of workers may
// sweep at any time. What cannot be removed does not keep the rest.
func (s *Spaces) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	ids := map[string]bool{}
	var errs []error
	for _, sub := range []string{"jobs", "locks"} {
		names, err := readNames(filepath.Join(s.cfg.Dir, sub))
		errs = append(errs, err)
		for _, name := range names {
			ids[name] = true
		}
	}
	for id := range ids {
		removed, err := s.sweepJob(ctx, id)
		if removed {
			swept.Workspaces = append(swept.Workspaces, id)
		}
		errs = append(errs, err)
	}
	slices.Sort(swept.Workspaces)
	var err error
	swept.Bases, err = s.evict(ctx)
	return swept, errors.Join(errors.Join(errs...), err, s.trash.empty(ctx))
}

func (s *Spaces) sweepJob(ctx context.Context, id string) (removed bool, err error) {
	l, err := tryLock(s.lockFile(id), syscall.LOCK_EX)
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.salvage(ctx, id, l); err != nil {
		return false, errors.Join(err, l.release())
	}
	taken, err := s.trash.take(s.jobDir(id))
	return taken != "", errors.Join(err, l.remove())
}

// A cached is a base as the evictor sees it.
type cached struct {
	dir  string
	used time.Time
	size int64
}

// evict removes bases that were not used for long, and the oldest of the rest
// as long as they take more than they may.
func (s *Spaces) evict(ctx context.Context) (int, error) {
	needed, err := s.needed()
	if err != nil {
		return 0, err
	}
	mirrors, err := readNames(filepath.Join(s.cfg.Dir, "mirrors"))
	errs := []error{err}
	var all []cached
	for _, key := range mirrors {
		dir := filepath.Join(s.cfg.Dir, "mirrors", key)
		errs = append(errs, s.sweepMirror(dir))
		found, err := bases(filepath.Join(dir, "bases"))
		all, errs = append(all, found...), append(errs, err)
	}
	slices.SortFunc(all, func(a, b cached) int { return b.used.Compare(a.used) })
	var total int64
	removed := 0
	for _, b := range all {
		total += b.size
		if needed[b.dir] || time.Since(b.used) < s.cfg.Limits.BaseAge && total <= s.cfg.Limits.BaseBytes {
			continue
		}
		gone, err := s.evictBase(b.dir)
		if gone {
			removed++
			total -= b.size
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

func (s *Spaces) evictBase(dir string) (bool, error) {
	l, err := tryLock(dir+".lock", syscall.LOCK_EX)
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = s.trash.take(dir)
	return err == nil, errors.Join(err, l.remove())
}

// sweepMirror removes what was half built, and a mirror that has no bases and
// was not used for as long as those are kept. Only who has the mirror's lock
// builds.
func (s *Spaces) sweepMirror(dir string) (err error) {
	l, err := tryLock(filepath.Join(dir, "lock"), syscall.LOCK_EX)
	if errors.Is(err, errLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.release()) }()
	remove := []string{"new-mirror", "new-base"}
	info, err := l.file.Stat()
	left, listing := bases(filepath.Join(dir, "bases"))
	if err := errors.Join(err, listing); err != nil {
		return err
	}
	if len(left) == 0 && time.Since(info.ModTime()) >= s.cfg.Limits.BaseAge {
		remove = append(remove, "mirror.git")
	}
	var errs []error
	for _, name := range remove {
		_, err := s.trash.take(filepath.Join(dir, name))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func bases(dir string) ([]cached, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []cached
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || strings.HasSuffix(e.Name(), ".lock") {
			continue
		}
		b := cached{dir: filepath.Join(dir, e.Name()), used: info.ModTime()}
		err = filepath.WalkDir(b.dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				b.size += info.Size()
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return all, fmt.Errorf("measure %s: %w", b.dir, err)
		}
		all = append(all, b)
	}
	return all, err
}
