package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Discard removes a workspace without an owner although its work cannot be salvaged,
// and returns what is lost with it; why says what prevented the salvage. If its work
// can be stored after all, nothing is lost. With dry it stores and removes nothing.
// With isolation none it keeps the directory itself.
func (s *Spaces) Discard(ctx context.Context, id string, dry bool) (lost []string, why, err error) {
	if !idPattern().MatchString(id) {
		return nil, nil, fmt.Errorf("workspace %s: %w", id, jobs.ErrNotFound)
	}
	if _, err := os.Lstat(s.homes.dir(id)); errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("workspace %s: %w", id, jobs.ErrNotFound)
	}
	l, err := s.homes.lock(id)
	if errors.Is(err, disk.ErrLocked) {
		return nil, nil, fmt.Errorf("workspace %s is in use by a worker", id)
	}
	if err != nil {
		return nil, nil, err
	}
	if dry {
		lost, err = s.homes.written(id)
		return lost, nil, errors.Join(err, l.Release())
	}
	w, err := s.abandoned(id, l)
	if err != nil {
		return nil, nil, errors.Join(err, l.Release())
	}
	whole, err := wholeOf(s.homes.dir(id))
	switch {
	case err != nil:
		return nil, nil, errors.Join(err, l.Release())
	case whole != nil:
		why = whole // what can be stored of it is
	case w != nil:
		why = s.salvage(ctx, w)
	}
	if why != nil {
		// A user who cannot see the losses has not agreed to them.
		if lost, err = s.homes.written(id); err != nil {
			return nil, why, errors.Join(err, l.Release())
		}
	}
	if w != nil {
		if err := w.withdraw(ctx); err != nil {
			return lost, why, errors.Join(err, l.Release())
		}
	}
	return lost, why, errors.Join(s.trash.Remove(ctx, s.homes.dir(id)), l.Remove())
}

// written lists what an agent wrote in one directory.
type written struct {
	files, unreadable int
	bytes             int64
}

func (t *written) add(path string, d fs.DirEntry, err error, since time.Time) error {
	if err == nil && d.IsDir() {
		return nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Lstat(path, &st)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENAMETOOLONG) {
		t.unreadable++ // entries below are not known
		return fs.SkipDir
	}
	// No program sets the time of a change. The record was written by the same
	// clock; in its tick a file too many says less wrong than one too few.
	if err == nil && !time.Unix(st.Ctim.Unix()).Before(since) {
		t.files++
		t.bytes += st.Size
	}
	return err
}

func (t *written) String() string {
	var parts []string
	if t.files > 0 {
		parts = append(parts, fmt.Sprintf("%d files, %d KiB", t.files, (t.bytes+1023)>>10))
	}
	if t.unreadable > 0 {
		parts = append(parts, fmt.Sprintf("%d directories that cannot be read", t.unreadable))
	}
	return strings.Join(parts, ", ")
}
