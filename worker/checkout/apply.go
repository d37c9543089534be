package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/scratch"
)

// ErrEmpty: a patch names no file, so there is nothing to apply.
var ErrEmpty = errors.New("the patch changes no file")

// A ConflictError names files that could be merged only in part. They have conflict
// markers, and git's index lists them as unmerged.
type ConflictError struct{ Files []string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%d files have conflicts: %s", len(e.Files), strings.Join(e.Files, ", "))
}

// A Tree is a work tree of the user's, or a directory in no repository.
type Tree struct {
	user git.UserTree
	env  []string
	hold []*os.File
}

// Open finds the work tree around a directory, with the user's environment.
func Open(ctx context.Context, dir string, env []string) (*Tree, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	user, err := git.Locate(ctx, dir, env)
	if errors.Is(err, git.ErrNoRepository) {
		return &Tree{user: git.UserTree{Top: dir, IDLen: 40}, env: env}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("work tree around %s: %w", dir, err)
	}
	return &Tree{user: user, env: env}, nil
}

// Top is the top of the work tree.
func (t *Tree) Top() string { return t.user.Top }

// Dir is the work tree's git directory; "" in no repository.
func (t *Tree) Dir() string { return t.user.Dir }

// Hold has the git that works on the tree inherit a locked file: if this process is killed,
// the lock lives until git has ended, too.
func (t *Tree) Hold(lock *os.File) { t.hold = append(t.hold, lock) }

// How says how to apply a patch.
type How struct {
	Check    bool // only check whether it applies
	ThreeWay bool // merge where it does not apply, in the index, too
}

// Applied is the effect of a patch. Filtered lists files for which the repository's
// attributes name a filter, "path (filter)": it was not run.
type Applied struct {
	Files    []string
	Filtered []string
}

// Apply applies a patch at the top of the work tree. It applies all of it or nothing,
// unless the user asked for a merge that ends in a [*ConflictError].
func (t *Tree) Apply(ctx context.Context, patch []byte, how How) (done Applied, err error) {
	shadow, drop, err := t.shadow()
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if done.Files, err = touched(ctx, shadow.Repo, patch); err != nil {
		return done, err
	}
	if len(done.Files) == 0 {
		return done, ErrEmpty
	}
	if err := t.outsideGit(done.Files); err != nil {
		return done, err
	}
	before, err := shadow.Filtered(ctx, done.Files)
	if err != nil {
		return done, err
	}
	done.Filtered = before
	if err := t.apply(ctx, shadow, patch, how); err != nil {
		return done, err
	}
	after, err := shadow.Filtered(ctx, done.Files)
	done.Filtered = slices.Compact(slices.Sorted(slices.Values(append(before, after...))))
	return done, err
}

func (t *Tree) apply(ctx context.Context, shadow *git.Shadow, patch []byte, how How) error {
	args := []string{"apply", "--binary", "--whitespace=nowarn"}
	repo := shadow.Repo
	if how.ThreeWay {
		if t.user.Dir == "" {
			return fmt.Errorf("merge into %s: %w", t.user.Top, git.ErrNoRepository)
		}
		args = append(args, "--3way")
		var err error
		if repo, err = shadow.OnIndex(ctx, !how.Check); err != nil {
			return err
		}
	}
	if how.Check {
		args = append(args, "--check")
	}
	failed := repo.Pipe(ctx, bytes.NewReader(patch), nil, append(args, "-")...)
	if failed == nil || !how.ThreeWay || how.Check {
		return failed
	}
	conflicts, err := unmerged(ctx, repo)
	if err == nil && len(conflicts) > 0 {
		return &ConflictError{conflicts}
	}
	return errors.Join(failed, err)
}

// outsideGit refuses a patch that would write to the repository itself: its git
// directory may be in the work tree under another name than .git, which git treats like
// any other directory.
func (t *Tree) outsideGit(paths []string) error {
	for _, dir := range []string{t.user.Dir, t.user.Common, t.user.Objects} {
		inside, err := filepath.Rel(t.user.Top, dir)
		if dir == "" || err != nil || !filepath.IsLocal(inside) {
			continue
		}
		for _, p := range paths {
			if rel, err := filepath.Rel(strings.ToLower(inside), strings.ToLower(p)); err == nil && filepath.IsLocal(rel) {
				return fmt.Errorf("%s is in the repository's git directory", p)
			}
		}
	}
	return nil
}

// shadow makes a git directory of ours for one operation.
func (t *Tree) shadow() (*git.Shadow, func() error, error) {
	dir, drop, err := scratch.Dir("checkout")
	if err != nil {
		return nil, nil, err
	}
	shadow, err := git.NewShadow(filepath.Join(dir, "git"), t.user)
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	shadow.Repo.Hold = t.hold
	return shadow, drop, nil
}

// touched lists the paths of a patch.
func touched(ctx context.Context, repo git.Repo, patch []byte) (paths []string, err error) {
	var out bytes.Buffer
	if err := repo.Pipe(ctx, bytes.NewReader(patch), &out, "apply", "--numstat", "-z", "--allow-empty", "-"); err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(out.String(), "\x00") {
		if fields := strings.SplitN(entry, "\t", 3); len(fields) == 3 {
			paths = append(paths, fields[2])
		}
	}
	return paths, nil
}

func unmerged(ctx context.Context, repo git.Repo) (paths []string, err error) {
	var out bytes.Buffer
	if err := repo.Pipe(ctx, nil, &out, "ls-files", "-z", "--unmerged"); err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(out.String(), "\x00") {
		if _, p, ok := strings.Cut(entry, "\t"); ok && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	return paths, nil
}
