package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Branch is one that is made of a patch: a commit on Base, with its time, so that the same
// branch asked for twice is the same commit.
type Branch struct{ Name, Base, Message string }

// ErrBranch: the repository has another branch of that name.
var ErrBranch = errors.New("there is another branch of that name")

// Branch makes a branch in the repository, and returns its commit. Work tree and index stay
// as they are. A branch that is there with that commit is returned.
func (t *Tree) Branch(ctx context.Context, b Branch, patch []byte) (commit string, err error) {
	if t.user.Dir == "" {
		return "", fmt.Errorf("branch %s: %w", b.Name, git.ErrNoRepository)
	}
	shadow, drop, err := t.shadow()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, drop()) }()
	r := shadow.Repo
	r.Env = append(slices.Clone(r.Env), "GIT_OBJECT_DIRECTORY="+t.user.Objects)
	if commit, err = commitOn(ctx, r, b, patch); err != nil {
		return "", err
	}
	return commit, t.lead(ctx, b.Name, commit)
}

// commitOn makes the commit in the object store of a repository, with an index of ours.
func commitOn(ctx context.Context, r git.Repo, b Branch, patch []byte) (string, error) {
	r.Index = filepath.Join(r.Dir, "index-of-branch")
	if !git.IsCommit(b.Base) {
		return "", fmt.Errorf("%q is not a commit", b.Base)
	}
	at, err := r.Output(ctx, "show", "-s", "--no-show-signature", "--format=%ct", b.Base)
	if err != nil {
		return "", fmt.Errorf("the repository does not have the base commit %s: %w", b.Base, err)
	}
	r = identified(r, "@"+at+" +0000")
	if err := r.Run(ctx, "read-tree", b.Base); err != nil {
		return "", err
	}
	if err := r.Pipe(ctx, bytes.NewReader(patch), nil, "apply", "--binary", "--whitespace=nowarn", "--cached", "-"); err != nil {
		return "", err
	}
	tree, err := r.Output(ctx, "write-tree", "--missing-ok") // of a partial clone
	if err != nil {
		return "", err
	}
	return r.Output(ctx, "commit-tree", "-p", b.Base, "-m", b.Message, tree)
}

// identified is a repository in which commits are made in our name, at a time.
func identified(r git.Repo, at string) git.Repo {
	r.Env = append(slices.Clone(r.Env), "GIT_AUTHOR_DATE="+at, "GIT_COMMITTER_DATE="+at)
	r.Set = append(slices.Clone(r.Set), "user.name=Penstock", "user.email=penstock@penstock.invalid")
	return r
}

// lead makes a new branch of the user's repository lead to a commit.
func (t *Tree) lead(ctx context.Context, name, commit string) error {
	here, err := git.Repo{Dir: t.user.Common, Hold: t.hold, Set: []string{"core.fsync=committed,reference"}}.Quiet(ctx)
	if err != nil {
		return err
	}
	ref := "refs/heads/" + name
	if err := here.Run(ctx, "check-ref-format", ref); err != nil {
		return fmt.Errorf("%q cannot be the name of a branch: %w", name, err)
	}
	failed := here.Run(ctx, "update-ref", "--no-deref", "--create-reflog", "-m", "penstock: branch of a result", ref, commit, strings.Repeat("0", len(commit)))
	if failed == nil {
		return nil
	}
	now, err := here.Output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", ref)
	switch {
	case err != nil:
		return errors.Join(failed, err)
	case now == commit+" "+ref:
		return nil
	case strings.HasSuffix(now, " "+ref):
		return fmt.Errorf("branch %s: %w", name, ErrBranch)
	}
	return failed
}
