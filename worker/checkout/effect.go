package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// An Entry is a path as git's index has it. Object is "" where the index has no such path.
type Entry struct {
	Path   string `json:"path"`
	Mode   uint32 `json:"mode,omitempty"`
	Object string `json:"object,omitempty"`
}

// An Effect is what a merge of a patch changes: Before are these paths as the index had
// them, Conflicts those that can be merged only in part.
type Effect struct {
	Before    []Entry
	Conflicts []string
}

// A Rehearsal merges patches into a copy of a work tree's index. Neither the work tree nor
// its repository changes.
type Rehearsal struct {
	tree *Tree
	repo git.Repo
	drop func() error
}

// Rehearse begins a rehearsal, with the index as it is now. Close ends it.
func (t *Tree) Rehearse(ctx context.Context) (*Rehearsal, error) {
	if t.user.Dir == "" {
		return nil, fmt.Errorf("merge into %s: %w", t.user.Top, git.ErrNoRepository)
	}
	shadow, drop, err := t.shadow()
	if err != nil {
		return nil, err
	}
	r, err := shadow.OnIndex(ctx, false)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	return &Rehearsal{tree: t, repo: r, drop: drop}, nil
}

// Close removes what the rehearsal has written.
func (r *Rehearsal) Close() error { return r.drop() }

// Try merges a patch. Where that ends with conflicts or an error, the next patch meets what
// was there before.
func (r *Rehearsal) Try(ctx context.Context, patch []byte) (effect Effect, err error) {
	paths, err := touched(ctx, r.repo, patch)
	if err == nil && len(paths) == 0 {
		err = ErrEmpty
	}
	if err == nil {
		err = r.tree.outsideGit(paths)
	}
	if err != nil {
		return effect, err
	}
	before, err := r.repo.Output(ctx, "write-tree", "--missing-ok") // of a partial clone
	if err != nil {
		return effect, err
	}
	failed := r.repo.Pipe(ctx, bytes.NewReader(patch), nil, "apply", "--binary", "--whitespace=nowarn", "--cached", "--3way", "-")
	if effect.Conflicts, err = unmerged(ctx, r.repo); err == nil {
		effect.Before, err = changed(ctx, r.repo, before)
	}
	if failed != nil && len(effect.Conflicts) == 0 {
		err = errors.Join(failed, err)
	}
	for _, e := range effect.Before {
		if e.Object == "" && err == nil {
			err = r.tree.vacant(e.Path)
		}
	}
	if err != nil || len(effect.Conflicts) > 0 {
		err = errors.Join(err, r.repo.Run(ctx, "read-tree", before))
	}
	return effect, err
}

// vacant refuses a path at which the work tree has a file that git does not track.
func (t *Tree) vacant(path string) error {
	root, err := os.OpenRoot(t.user.Top)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = root.Lstat(filepath.FromSlash(path))
	if err == nil {
		return fmt.Errorf("%s: already exists in working directory", path)
	}
	return nil // what else is in the way, git finds when it writes
}

// changed lists the paths in which the index differs from a tree, as the tree has them.
func changed(ctx context.Context, repo git.Repo, tree string) (list []Entry, err error) {
	var out bytes.Buffer
	if err := repo.Pipe(ctx, nil, &out, "diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", tree); err != nil {
		return nil, err
	}
	fields := strings.Split(out.String(), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		e := Entry{Path: fields[i+1]}
		words := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(words) < 5 {
			return nil, fmt.Errorf("git diff-index says %q", fields[i])
		}
		mode, err := strconv.ParseUint(words[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("git diff-index says %q: %w", fields[i], err)
		}
		if mode != 0 {
			e.Mode, e.Object = uint32(mode), words[2]
		}
		list = append(list, e)
	}
	return list, nil
}

// A Reach is how far an interrupted merge of a patch has come.
type Reach int

// Git writes the files first, and the index last.
const (
	Untouched Reach = iota
	Partly          // files were written, the index was not
	Written
)

// Reached says how far a merge has come that was to change the entries, and which of them
// are unmerged.
func (t *Tree) Reached(ctx context.Context, before []Entry) (reach Reach, conflicts []string, err error) {
	err = t.onIndex(ctx, false, func(r git.Repo) error {
		if conflicts, err = t.unmerged(ctx, r, before); err != nil {
			return err
		}
		now, err := entries(ctx, r)
		if err != nil {
			return err
		}
		for _, e := range before {
			if is := now[e.Path]; is.Mode != e.Mode || is.Object != e.Object {
				reach = Written
				return nil
			}
		}
		dirty, err := t.dirty(ctx, r, before)
		if len(dirty) > 0 {
			reach = Partly
		}
		return err
	})
	return reach, conflicts, err
}

// Restore gives files and the index the entries from before a merge. The contents that it
// replaces are in the repository afterwards: saved names them, "object path".
func (t *Tree) Restore(ctx context.Context, before []Entry) (saved []string, err error) {
	err = t.onIndex(ctx, true, func(r git.Repo) error {
		dirty, err := t.dirty(ctx, r, before)
		if err != nil {
			return err
		}
		for _, path := range dirty {
			if info, err := os.Lstat(filepath.Join(t.user.Top, path)); err != nil || !info.Mode().IsRegular() {
				continue
			}
			id, err := r.Output(ctx, "hash-object", "-w", "--no-filters", "--", path)
			if err != nil {
				return err
			}
			saved = append(saved, id+" "+path)
		}
		return t.putBack(ctx, r, before)
	})
	return saved, err
}

func (t *Tree) putBack(ctx context.Context, r git.Repo, before []Entry) error {
	root, err := os.OpenRoot(t.user.Top)
	if err != nil {
		return err
	}
	defer root.Close()
	var index, files strings.Builder
	for _, e := range before {
		if e.Object == "" {
			if err := root.Remove(filepath.FromSlash(e.Path)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove %s: %w", e.Path, err)
			}
			fmt.Fprintf(&index, "0 %s 0\t%s\x00", strings.Repeat("0", t.user.IDLen), e.Path)
			continue
		}
		fmt.Fprintf(&index, "%o %s 0\t%s\x00", e.Mode, e.Object, e.Path)
		if e.Mode != git.ModeModule {
			files.WriteString(e.Path + "\x00")
		}
	}
	if err := r.Pipe(ctx, strings.NewReader(index.String()), nil, "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	return r.Pipe(ctx, strings.NewReader(files.String()), nil, "checkout-index", "-f", "-u", "-z", "--stdin")
}

// onIndex lets do work on the user's index, or with change false on a copy of it.
func (t *Tree) onIndex(ctx context.Context, change bool, do func(git.Repo) error) (err error) {
	shadow, drop, err := t.shadow()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	r, err := shadow.OnIndex(ctx, change)
	if err != nil {
		return err
	}
	return do(r)
}

// entries are those of the index that are merged, by path.
func entries(ctx context.Context, r git.Repo) (map[string]Entry, error) {
	var out bytes.Buffer
	if err := r.Pipe(ctx, nil, &out, "ls-files", "-z", "--stage"); err != nil {
		return nil, err
	}
	found := map[string]Entry{}
	for line := range strings.SplitSeq(out.String(), "\x00") {
		what, path, ok := strings.Cut(line, "\t")
		words := strings.Fields(what)
		if !ok || len(words) != 3 || words[2] != "0" {
			continue
		}
		mode, err := strconv.ParseUint(words[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("git ls-files says %q: %w", line, err)
		}
		found[path] = Entry{Path: path, Mode: uint32(mode), Object: words[1]}
	}
	return found, nil
}

// dirty are the paths of entries whose files are not as the index has them.
func (t *Tree) dirty(ctx context.Context, r git.Repo, before []Entry) (paths []string, err error) {
	var out bytes.Buffer
	if err := r.Pipe(ctx, nil, &out, "diff-files", "--name-only", "-z", "--ignore-submodules=all"); err != nil {
		return nil, err
	}
	differ := strings.Split(out.String(), "\x00")
	for _, e := range before {
		if slices.Contains(differ, e.Path) || e.Object == "" && t.vacant(e.Path) != nil {
			paths = append(paths, e.Path)
		}
	}
	return paths, nil
}

func (t *Tree) unmerged(ctx context.Context, r git.Repo, before []Entry) (paths []string, err error) {
	all, err := unmerged(ctx, r)
	for _, path := range all {
		if slices.ContainsFunc(before, func(e Entry) bool { return e.Path == path }) {
			paths = append(paths, path)
		}
	}
	return paths, err
}
