package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// sweepWorktrees ends what killed processes have left half done in users'
// repositories, and removes the worktrees that nobody has touched for long.
func (s *Spaces) sweepWorktrees(ctx context.Context, dry bool) (map[string]error, error) {
	if s.cfg.Worktrees == "" {
		return nil, nil
	}
	trees, err := OpenWorktrees(s.cfg.Worktrees)
	if err != nil {
		return nil, err
	}
	records, err := trees.List()
	errs := []error{err}
	stale := map[string]error{}
	for _, wt := range records {
		switch {
		case ctx.Err() != nil:
			return stale, context.Cause(ctx)
		case wt.State == "" && s.cfg.Limits.WorktreeAge > 0 && time.Since(wt.Touched()) > s.cfg.Limits.WorktreeAge:
			stale[wt.Path] = s.sweepStale(ctx, trees, wt, dry)
		case !dry && (wt.State == adding || wt.State == removing || wt.State == working && !disk.Exists(filepath.Join(s.jobDir(wt.Attempt), recordFile))):
			errs = append(errs, s.settleWorktree(ctx, trees, wt))
		}
	}
	return stale, errors.Join(errs...)
}

// settleWorktree ends what was begun. A worktree that works for an attempt
// without a record was given to nobody.
func (s *Spaces) settleWorktree(ctx context.Context, trees *Worktrees, wt Worktree) (err error) {
	shelf, err := trees.shelf(ctx, wt.Repo)
	if err != nil || wt.State != working {
		if err == nil {
			shelf.close()
		}
		return err
	}
	defer shelf.close()
	l, err := disk.TryLock(s.lockFile(wt.Attempt), syscall.LOCK_EX)
	if errors.Is(err, disk.ErrLocked) {
		return nil // it is being made
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Remove()) }()
	// The attempt may have written its record, or ended, since we looked.
	if disk.Exists(filepath.Join(s.jobDir(wt.Attempt), recordFile)) {
		return nil
	}
	records, err := readRecords(shelf.dir)
	if err != nil || !slices.ContainsFunc(records, func(now Worktree) bool {
		return now.Name == wt.Name && now.Attempt == wt.Attempt && now.State == working
	}) {
		return err
	}
	wt.State = removing
	if err := shelf.keep(wt); err != nil {
		return err
	}
	return shelf.erase(ctx, wt)
}

func (s *Spaces) sweepStale(ctx context.Context, trees *Worktrees, wt Worktree, dry bool) error {
	if wt.Stored != nil && *wt.Stored != (Receipt{}) {
		if s.cfg.Stored == nil {
			return &KeptError{wt.Path, "has changes of a job, and whether they are stored cannot be known here"}
		}
		stored, err := s.cfg.Stored(ctx, wt.Attempt, *wt.Stored)
		if err == nil && !stored {
			err = errors.New("its result is not in the store any more")
		}
		if err != nil {
			return &KeptError{wt.Path, fmt.Sprintf("has changes of a job that are not safe elsewhere: %v", err)}
		}
	}
	if dry {
		return trees.examine(ctx, wt)
	}
	_, err := trees.Remove(ctx, wt, false)
	return err
}

// examine returns why Remove would keep a worktree.
func (t *Worktrees) examine(ctx context.Context, wt Worktree) error {
	if !disk.Exists(wt.Repo) {
		return &KeptError{wt.Path, "has lost its repository"}
	}
	s, err := t.shelf(ctx, wt.Repo)
	if err != nil {
		return err
	}
	defer s.close()
	admin, err := s.registered(wt)
	if err != nil {
		return err
	}
	return s.mayGo(ctx, wt, admin)
}

// printOf tells whether anybody has changed anything in a worktree since: it is
// a sum of what the kernel says of each file, without a look into it.
func printOf(wt Worktree, limits changes.Limits) (string, error) {
	if err := wt.there(); err != nil {
		return "", err
	}
	fd, err := disk.OpenDir(unix.AT_FDCWD, wt.Path)
	if err != nil {
		return "", err
	}
	p := &printer{limits: limits}
	if err := p.directory(fd, "", 0); err != nil {
		return "", err
	}
	sum := sha256.New()
	slices.Sort(p.lines)
	for _, line := range p.lines {
		fmt.Fprintf(sum, "%d %s", len(line), line)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

type printer struct {
	limits changes.Limits
	lines  []string
}

func (p *printer) directory(fd int, path string, depth int) error {
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	if depth > p.limits.Depth || len(p.lines)+len(names) > p.limits.Entries {
		return &changes.LimitError{What: "files and directories", Limit: int64(p.limits.Entries), Path: disk.Shorten(path)}
	}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			p.lines = append(p.lines, fmt.Sprintf("%s %d %d %d %d %d %d", filepath.Join(path, name), st.Mode, st.Size, st.Ino, st.Nlink, st.Mtim.Nano(), st.Ctim.Nano()))
			continue
		}
		below, err := disk.OpenDir(fd, name)
		if err != nil {
			return err
		}
		p.lines = append(p.lines, fmt.Sprintf("%s/ %d", filepath.Join(path, name), st.Mode))
		if err := p.directory(below, filepath.Join(path, name), depth+1); err != nil {
			return err
		}
	}
	return nil
}
