package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// Uncommitted are the paths of a work tree that its HEAD does not have as they
// are: of files that git tracks, staged or not, and of others that no ignore
// file names. Nested are directories with a repository of their own.
type Uncommitted struct {
	Changed, Untracked, Nested []string
}

// Uncommitted looks at a work tree as git status does, and changes nothing,
// git's index included. A repository without a commit has nothing.
func (t *Tree) Uncommitted(ctx context.Context) (found Uncommitted, err error) {
	err = t.atHead(ctx, func(r git.Repo, _ string) error {
		found, err = uncommitted(ctx, r)
		return err
	})
	return found, err
}

// atHead lets see work with a copy of the user's index, at the user's HEAD.
func (t *Tree) atHead(ctx context.Context, see func(r git.Repo, head string) error) (err error) {
	if t.user.Dir == "" {
		return nil
	}
	head, err := git.UserCommit(ctx, t.user.Top, []string{"HEAD"}, t.env)
	if err != nil || head == "" {
		return err
	}
	shadow, drop, err := t.shadow()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := shadow.At(head); err != nil {
		return err
	}
	r, err := shadow.OnIndex(ctx, false)
	if err != nil {
		return err
	}
	return see(r, head)
}

func uncommitted(ctx context.Context, r git.Repo) (found Uncommitted, err error) {
	var out bytes.Buffer
	// Git would look into submodules with a git of their own configuration.
	if err := r.Pipe(ctx, nil, &out, "status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames"); err != nil {
		return found, err
	}
	for entry := range strings.SplitSeq(out.String(), "\x00") {
		if len(entry) < 4 {
			continue
		}
		what, path := entry[:2], entry[3:]
		switch {
		case strings.Contains(what, "U") || what == "AA" || what == "DD":
			return found, fmt.Errorf("%s is not merged: resolve it first", path)
		case what != "??":
			found.Changed = append(found.Changed, path)
		case strings.HasSuffix(path, "/"):
			found.Nested = append(found.Nested, path)
		default:
			found.Untracked = append(found.Untracked, path)
		}
	}
	return found, nil
}

// A Snapshot is a commit of the uncommitted changes, on top of HEAD; HEAD itself
// if there are none. It is in no repository of the user's.
type Snapshot struct {
	Head, Commit string
	Files        int
	Filtered     []string // files that have a filter, as in [Applied]: they are as on disk
	Nested       []string // directories that were left out
}

// Bounds of what a snapshot takes: more than that is there by mistake.
const (
	maxSnapshotFiles = 50_000
	maxSnapshotBytes = 1 << 30
)

// Snapshot makes a commit of the work tree as it is, and hands what HEAD lacks
// of it to take, as a thin pack. What ignore files name is left out. No filter
// runs: its program could be a file of the work tree that an agent wrote. The
// same files on the same HEAD give the same commit.
func (t *Tree) Snapshot(ctx context.Context, take func(head, commit string, pack io.Reader) error) (snap Snapshot, err error) {
	if t.user.Dir == "" {
		return snap, fmt.Errorf("%s: %w", t.user.Top, git.ErrNoRepository)
	}
	err = t.atHead(ctx, func(r git.Repo, head string) error {
		snap.Head, snap.Commit = head, head
		found, err := uncommitted(ctx, r)
		if err != nil {
			return err
		}
		paths := append(found.Changed, found.Untracked...)
		snap.Files, snap.Nested = len(paths), found.Nested
		if len(paths) == 0 {
			return nil
		}
		if err := t.bounded(paths); err != nil {
			return err
		}
		if snap.Filtered, err = r.Filtered(ctx, paths); err != nil {
			return err
		}
		if snap.Commit, err = commit(ctx, r, head, paths); err != nil {
			return err
		}
		return handOver(ctx, r, snap, take)
	})
	if err == nil && snap.Commit == "" {
		err = fmt.Errorf("%s has no commit yet: make one first", t.user.Top)
	}
	return snap, err
}

// bounded refuses more files than a user could mean to hand to an agent.
func (t *Tree) bounded(paths []string) error {
	if len(paths) > maxSnapshotFiles {
		return fmt.Errorf("%d files are not committed, and at most %d are taken: name what does not belong there in .gitignore", len(paths), maxSnapshotFiles)
	}
	var total, largest int64
	var name string
	for _, p := range paths {
		if info, err := os.Lstat(filepath.Join(t.user.Top, p)); err == nil && info.Mode().IsRegular() {
			total += info.Size()
			if info.Size() > largest {
				largest, name = info.Size(), p
			}
		}
	}
	if total > maxSnapshotBytes {
		return fmt.Errorf("what is not committed has %d bytes, and at most %d are taken; the largest is %s: name what does not belong there in .gitignore", total, int64(maxSnapshotBytes), name)
	}
	return nil
}

// commit makes the commit in the shadow's own object store.
func commit(ctx context.Context, r git.Repo, head string, paths []string) (string, error) {
	in := strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	if err := r.Pipe(ctx, in, nil, "update-index", "-z", "--add", "--remove", "--replace", "--stdin"); err != nil {
		return "", err
	}
	tree, err := r.Output(ctx, "write-tree", "--missing-ok") // of a partial clone
	if err != nil {
		return "", err
	}
	at, err := r.Output(ctx, "show", "-s", "--no-show-signature", "--format=%ct", head)
	if err != nil {
		return "", err
	}
	return identified(r, "@"+at+" +0000").Output(ctx, "commit-tree", "-p", head, "-m", "Uncommitted changes", tree)
}

// handOver lets take read a pack of what the snapshot has and HEAD lacks.
func handOver(ctx context.Context, r git.Repo, snap Snapshot, take func(head, commit string, pack io.Reader) error) (err error) {
	pack, err := os.Create(filepath.Join(r.Dir, "snapshot.pack")) // which goes with the shadow
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pack.Close()) }()
	want := strings.NewReader(snap.Commit + "\n^" + snap.Head + "\n")
	if err := r.Pipe(ctx, want, pack, "pack-objects", "--quiet", "--revs", "--thin", "--delta-base-offset", "--stdout"); err != nil {
		return err
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return take(snap.Head, snap.Commit, pack)
}
