package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// homes are the directories in which the host keeps workspaces and their records: one for each
// id, with a lock beside.
type homes struct{ root string }

func (h homes) dir(id string) string { return filepath.Join(h.root, "jobs", id) }

func (h homes) ids() ([]string, error) { return disk.Names(filepath.Join(h.root, "jobs")) }

// lock takes the lock of a workspace, which its owner holds for as long as it lives.
func (h homes) lock(id string) (*disk.Lock, error) {
	return disk.TryLock(h.lockFile(id), syscall.LOCK_EX)
}

func (h homes) lockFile(id string) string { return filepath.Join(h.root, "locks", id) }

// needed lists the bases and layers that workspaces were made from, be their owners
// alive or not: without its base a workspace cannot be collected.
func (h homes) needed(leaving []string) (map[string]bool, error) {
	ids, err := h.ids()
	found := map[string]bool{}
	for _, id := range ids {
		if slices.Contains(leaving, id) {
			continue
		}
		r, unreadable := readRecord(h.dir(id))
		if unreadable == nil {
			found[r.Base], found[r.Layer] = true, true
		}
	}
	return found, err
}

// spent lists the workspaces that were kept too long, and the oldest of the rest that
// together exceed the size limit. Other workspaces are left for their owners or the
// next sweep.
func (h homes) spent(limits Limits) (map[string]bool, error) {
	ids, err := h.ids()
	kept := map[string]changes.LimitError{}
	for _, id := range ids {
		whole, unreadable := wholeOf(h.dir(id))
		if whole != nil && unreadable == nil {
			kept[id] = *whole
		}
	}
	return overdue(kept, limits, time.Now()), err
}

// usedBy is the directory of a workspace; "" if it has none, or none yet.
func (h homes) usedBy(id string) string {
	if hooked, err := readHook(h.dir(id)); err == nil && hooked != nil {
		return hooked.Dir
	}
	r, err := readRecord(h.dir(id))
	if err != nil {
		return ""
	}
	return r.Dir
}

// written lists what was written in a workspace since it was made: a line for each
// entry at its top.
func (h homes) written(id string) ([]string, error) {
	home := h.dir(id)
	r, err := readRecord(home)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it was never given to an agent
	}
	if err != nil {
		return nil, err
	}
	if r.Linked != nil && r.Linked.There() != nil {
		return nil, nil // the directory is gone, and another one in its place stays
	}
	hooked, err := readHook(home)
	if err != nil {
		return nil, err
	}
	if hooked != nil && hooked.there() != nil {
		return nil, nil // the same
	}
	if hooked == nil && r.Linked == nil && r.Dir != filepath.Join(home, "workspace") {
		return []string{"the patch of what was changed in " + disk.Printable(r.Dir) + ", which stays"}, nil
	}
	info, err := os.Stat(filepath.Join(home, recordFile))
	if err != nil {
		return nil, err
	}
	tally := map[string]*written{}
	err = filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(r.Dir, path)
		top, _, _ := strings.Cut(rel, string(filepath.Separator))
		if tally[top] == nil {
			tally[top] = &written{}
		}
		return tally[top].add(path, d, err, info.ModTime())
	})
	var lines []string
	for name, t := range tally {
		if line := t.String(); line != "" && name != "." {
			lines = append(lines, disk.Printable(disk.Shorten(name))+": "+line)
		}
	}
	slices.Sort(lines)
	return lines, err
}
