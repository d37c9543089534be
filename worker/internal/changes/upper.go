package changes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// The upper directory of an overlay contains the differences from the layers below:
// files as they are, a character device 0:0 for a removed entry, and on a directory the
// marks that it hides the one below, or shows another one. Only the kernel can set the
// marks: an agent reaches the directory through the overlay, which keeps them to
// itself. Below is the template, and between the two may be the layer of setup, which
// was an upper directory itself. The walk resolves names as the kernel does, so it
// makes no difference which of the two has a file.

// A layered is a directory of the merged view. Its own descriptor is that of the upper
// directory, -1 if that does not have it.
type layered struct {
	visit
	shown
	moved bool // the template's directory shows through at another path than its own
}

// dirs lists the descriptors of a directory, the uppermost first.
func (at layered) dirs() []int {
	return slices.DeleteFunc([]int{at.fd, at.shown.layer}, func(fd int) bool { return fd < 0 })
}

// An upperWalk walks the upper directory of an overlay, over the layers below.
type upperWalk struct {
	*walk
	below lower
}

// run walks all of the upper directory at root.
func (w *upperWalk) run(ctx context.Context, root string) error {
	fd, err := disk.OpenDir(unix.AT_FDCWD, root)
	if err != nil {
		return fmt.Errorf("open %s: %w", root, err)
	}
	below, err := w.below.top()
	if err != nil {
		unix.Close(fd)
		return err
	}
	return w.layer(ctx, layered{visit: visit{fd: fd}, shown: below})
}

// layer walks one open directory of the merged view, which it closes.
func (w *upperWalk) layer(ctx context.Context, at layered) error {
	names, done, err := w.union(at.dirs(), at.visit)
	defer done()
	if at.ignored && err != nil && !w.knownBelow(at.path) {
		_, limit := errors.AsType[*LimitError](err)
		if limit {
			return nil // an ignored directory is no part of the result, however deep
		}
	}
	if err != nil {
		return w.leaveOut(at.path, err)
	}
	if !at.ignored {
		at.patterns = at.patterns.Enter(at.path, w.ignoreOf(at, names))
	}
	if at.moved && !at.alone {
		w.addMoved(at, names)
	}
	return w.each(ctx, at.path, names, func(name string) error { return w.layered(ctx, at, name) })
}

// union lists the names in open directories that lie above each other, sorted,
// until done closes them.
func (w *walk) union(fds []int, at visit) (names []string, done func(), err error) {
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), at.path))
	}
	done = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, f := range files {
		more, err := w.names(f, at)
		if err != nil {
			return nil, done, err
		}
		names = append(names, more...)
	}
	slices.Sort(names)
	return slices.Compact(names), done, nil
}

// addMoved adds the template's files that show through at another path unchanged. Their
// content is known.
func (w *upperWalk) addMoved(at layered, names []string) {
	touched := make(map[string]bool, len(names))
	for _, name := range names {
		touched[name] = true
	}
	for _, e := range w.known.Below(at.lower) {
		rest := strings.TrimPrefix(e.Path, at.lower+"/")
		if first, _, _ := strings.Cut(rest, "/"); touched[first] {
			continue
		}
		e.Path = path.Join(at.path, rest)
		w.stage.moved = append(w.stage.moved, e)
	}
}

// layered handles one name of the upper directory or the layer.
func (w *upperWalk) layered(ctx context.Context, at layered, name string) error {
	p := path.Join(at.path, name)
	from, st, err := find(at.dirs(), name)
	if err != nil {
		return fmt.Errorf("look at %s: %w", disk.Printable(p), err)
	}
	w.device = uint64(st.Dev) // the two may be on different devices; nothing is mounted in either
	kind := st.Mode & unix.S_IFMT
	if isWhiteout(&st) {
		w.remove(p)
		return nil
	}
	known := w.known.Has(p) || (at.moved && !at.alone && w.known.Has(path.Join(at.lower, name)))
	ignored := at.ignored || at.patterns.Match(p, kind == unix.S_IFDIR)
	switch {
	case kind == unix.S_IFDIR && known && w.moduleAt(at, p, name):
		return nil
	case kind == unix.S_IFDIR:
		at.ignored = ignored
		return w.descendLayer(ctx, at, name)
	case !known && ignored && !w.isForced(p):
		return nil
	case kind != unix.S_IFREG && kind != unix.S_IFLNK:
		w.remove(p)
	}
	return w.leaf(from, p, name, &st)
}

// find looks a name up in directories that lie above each other. It returns the
// uppermost one that has it.
func find(dirs []int, name string) (parent int, st unix.Stat_t, err error) {
	err = unix.ENOENT
	for _, parent = range dirs {
		if err = unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
			break
		}
	}
	return parent, st, err
}

func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// moduleAt keeps a submodule's commit as it is, if there is one: its files belong to
// another repository.
func (w *upperWalk) moduleAt(at layered, p, name string) bool {
	from := p
	if at.moved && !at.alone {
		from = path.Join(at.lower, name)
	}
	i, found := w.known.Find(from)
	if !found || w.known[i].Mode != git.ModeModule {
		return false
	}
	if from != p || w.again {
		e := w.known[i]
		e.Path = p
		w.stage.moved = append(w.stage.moved, e)
	}
	w.skipped.add(p, "is a submodule; its files are not part of the result")
	return true
}

// remove records that the base's files at p, or below, are gone. Files found there are
// added afterwards.
func (w *upperWalk) remove(p string) {
	if w.known.Has(p) || len(w.known.Below(p)) > 0 {
		w.stage.deleted = append(w.stage.deleted, p)
	}
}

// descendLayer walks the directory name of at, with the lower layers that show through
// it.
func (w *upperWalk) descendLayer(ctx context.Context, at layered, name string) error {
	p := path.Join(at.path, name)
	fd, below, err := w.below.enter(at, name)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", disk.Printable(p), err)
	}
	at.fd, at.path, at.depth, at.shown = fd, p, at.depth+1, below
	at.moved = at.alone || at.lower != p
	if at.ignored && at.alone && !w.knownBelow(p) {
		if fd >= 0 {
			unix.Close(fd)
		}
		below.close()
		w.remove(p) // a file that became an ignored directory
		return nil
	}
	if at.moved {
		w.remove(p)
		if w.gone(p) {
			// Unchanged files at p have to be added again.
			was := w.again
			w.again = true
			defer func() { w.again = was }()
		}
	}
	return w.layer(ctx, at)
}

// gone reports whether p was removed as a whole.
func (w *upperWalk) gone(p string) bool {
	n := len(w.stage.deleted)
	return n > 0 && w.stage.deleted[n-1] == p
}

// ignoreOf reads the .gitignore that applies in a directory: the agent's if there is
// one, or the layer's, or else the template's that shows through.
func (w *upperWalk) ignoreOf(at layered, names []string) []byte {
	if slices.Contains(names, ".gitignore") {
		from := at.visit
		from.fd, _, _ = find(at.dirs(), ".gitignore") // an unreadable file has no patterns
		return w.ignoreFile(from)
	}
	i, found := w.known.Find(path.Join(at.lower, ".gitignore"))
	if at.alone || !found || w.known[i].Mode != git.ModeFile {
		return nil
	}
	content, err := w.below.read(path.Join(at.lower, ".gitignore"))
	if err != nil || len(content) > maxControlFile {
		w.skipped.add(path.Join(at.path, ".gitignore"), "is too large to be obeyed, or cannot be read")
		return nil
	}
	return content
}
