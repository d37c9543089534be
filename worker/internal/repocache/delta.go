package repocache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/gitmonitor"
)

// A template is whole, or a delta over that of another commit. A delta has the files
// that differ, with the kernel's marks for removed ones, and its cost grows with the
// differences. The template below stays as long as there is one above.

const (
	// maxTrees is how many directories make up a template. Each costs every
	// mount and every search for a file a little.
	maxTrees = 4
	// maxTreePaths bounds the bytes of their paths: the kernel takes a page.
	maxTreePaths = 2000
)

// below returns the base whose template shows through this one's, or nil.
func (b *Base) below() (*Base, error) {
	commit, err := os.ReadFile(filepath.Join(b.template(), "below"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !git.IsCommit(string(commit)) {
		err = fmt.Errorf("template %s is damaged", b.template())
	}
	return &Base{Dir: filepath.Join(filepath.Dir(b.Dir), string(commit))}, err
}

// stack lists the directories that make up a template, the uppermost first. If
// there is no template the error is [os.ErrNotExist].
func (b *Base) stack() ([]string, error) {
	var trees []string
	for at := b; at != nil; {
		if len(trees) == maxTrees {
			return nil, fmt.Errorf("template %s is damaged", b.template())
		}
		dir := filepath.Join(at.template(), "tree")
		if _, err := os.Stat(dir); err != nil {
			return nil, err
		}
		trees = append(trees, dir)
		var err error
		if at, err = at.below(); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// supports reports whether another template is a delta over this one. The answer holds
// as long as the mirror's lock.
func (b *Base) supports() (bool, error) {
	all := filepath.Dir(b.Dir)
	names, err := disk.Names(all)
	return slices.ContainsFunc(names, func(name string) bool {
		below, err := (&Base{Dir: filepath.Join(all, name)}).below()
		return err == nil && below != nil && below.Dir == b.Dir
	}), err
}

// belowLast makes eviction visit a template before those below it, which it keeps:
// these were used whenever it was.
func belowLast(all []cached) {
	at := map[string]int{}
	for i, c := range all {
		at[c.dir] = i
	}
	for i, c := range all {
		above := &Base{Dir: cmp.Or(c.base, c.dir)}
		for range maxTrees {
			below, err := above.below()
			if err != nil || below == nil {
				break
			}
			all[i].over++
			if n, found := at[below.Dir]; found && c.base == "" && all[n].used.Before(c.used) {
				all[n].used = c.used
			}
			above = below
		}
	}
}

// candidates is how many templates are compared with a commit.
const candidates = 4

// nearest finds the template that differs least from a commit, if one differs
// so little that a delta pays. The caller holds the mirror's lock, so nothing
// is evicted before there is a template that needs it.
func (m *mirror) nearest(b *Base) (*Base, error) {
	files, err := m.cache.listings.get(b.Index())
	if err != nil {
		return nil, err
	}
	others, err := templates(m.path("bases"))
	if err != nil {
		return nil, err
	}
	var best *Base
	least := len(files)/5 + 1
	for _, other := range others[:min(len(others), candidates)] {
		theirs, damaged := m.cache.listings.get(other.Index())
		if n, ok := distance(theirs, files); damaged == nil && ok && n < least {
			best, least = other, n
		}
	}
	return best, nil
}

// templates lists the bases in a directory on whose templates another one may lie, the last
// used first.
func templates(dir string) ([]*Base, error) {
	all, err := newest(dir)
	return slices.DeleteFunc(all, func(b *Base) bool {
		var err error
		b.Trees, err = b.stack()
		return err != nil || len(b.Trees) == maxTrees || len(strings.Join(b.Trees, ":")) > maxTreePaths
	}), err
}

// newest lists the bases in a directory, the last used first.
func newest(dir string) ([]*Base, error) {
	entries, err := entriesOf(dir)
	if err != nil {
		return nil, err
	}
	used := map[*Base]int64{}
	var found []*Base
	for _, e := range entries {
		if info, gone := e.Info(); gone == nil {
			b := BaseAt(filepath.Join(dir, e.Name()))
			used[b] = info.ModTime().UnixNano()
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *Base) int { return cmp.Compare(used[b], used[a]) })
	return found, nil
}

// distance counts the files in which two commits differ. It is not ok if one
// of them decides how others are written.
func distance(c, other git.Listing) (n int, ok bool) {
	for len(c) > 0 || len(other) > 0 {
		var p string
		switch {
		case len(c) == 0 || len(other) > 0 && other[0].Path < c[0].Path:
			p, other = other[0].Path, other[1:]
		case len(other) == 0 || c[0].Path < other[0].Path:
			p, c = c[0].Path, c[1:]
		default:
			same := c[0].Object == other[0].Object && c[0].Mode == other[0].Mode
			p, c, other = c[0].Path, c[1:], other[1:]
			if same {
				continue
			}
		}
		if path.Base(p) == ".gitattributes" {
			return 0, false
		}
		n++
	}
	return n, true
}

// deltaScript lets git go from one commit to the other; the kernel keeps what
// that takes. The arguments are what only the one below has in its git
// directory. Git takes over what it has noted of the other files.
const deltaScript = "set -e\nrm -f -- \"$@\"\n" + gitmonitor.Nothing + `git -c "core.fsmonitor=$nothing" read-tree -u --reset HEAD`

// delta fills a template with what differs from the one below.
func (b *Base) delta(ctx context.Context, below *Base, fresh string) error {
	surplus, err := onlyIn(below.Git(), b.Git())
	if err != nil {
		return err
	}
	args := append([]string{"sh", "-c", deltaScript, "sh"}, surplus...)
	if err := b.inside(ctx, sandbox.Spec{Workspace: filepath.Join(fresh, "tree"), Lower: below.Trees, Args: args}, nil); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(fresh, "below"), []byte(filepath.Base(below.Dir)), 0o600)
}

// onlyIn lists the files of one git directory that another does not have, as
// a template shows them.
func onlyIn(one, other string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(one, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(name, one), "/")
		if rel == "objects" {
			return filepath.SkipDir
		}
		if _, err := os.Lstat(filepath.Join(other, rel)); !d.IsDir() && errors.Is(err, os.ErrNotExist) {
			names = append(names, filepath.Join(".git", rel))
		}
		return nil
	})
	return names, err
}
