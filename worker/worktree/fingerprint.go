package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Examine returns why Remove would keep a worktree.
func (t *Set) Examine(ctx context.Context, wt Worktree) error {
	if !disk.Exists(wt.Repo) {
		return &KeptError{wt.Path, "has lost its repository"}
	}
	s, err := t.Repo(ctx, wt.Repo)
	if err != nil {
		return err
	}
	defer s.Close()
	admin, err := s.registered(wt)
	if err != nil {
		return err
	}
	return s.mayGo(ctx, wt, admin)
}

// printOf detects changes in a worktree: it hashes what the kernel reports of each
// file, without reading it.
func printOf(wt Worktree, limits changes.Limits) (string, error) {
	if err := wt.There(); err != nil {
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
