package delivery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// An outlet is a branch of the repository that a job began from.
type outlet struct {
	from Origin
	src  source.Source
	ref  string   // its full name
	here git.Repo // a local repository itself
}

func (o Origin) outlet(ctx context.Context, src source.Source, branch string) (outlet, error) {
	to := outlet{from: o, src: src, ref: "refs/heads/" + branch}
	if !src.Remote.Local {
		return to, nil
	}
	info, err := os.Stat(src.Remote.URL)
	if err == nil {
		err = src.CheckReadable()
	}
	if err != nil {
		return to, err
	}
	// A job ends when its branch is there, and git does not wait by itself until refs are on
	// the disk: a host that loses power right after would have an empty file in its place.
	to.here = git.Repo{Dir: src.Remote.URL, Set: []string{"user.name=Penstock", "user.email=penstock@penstock.invalid", "core.fsync=committed,reference"}}
	if owner := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 && owner.Uid != 0 {
		to.here.As = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	to.here, err = to.here.Quiet(ctx)
	return to, to.failed(err)
}

func (o outlet) refuse(why string) error {
	return &BranchError{Repo: o.src.Name, Branch: strings.TrimPrefix(o.ref, "refs/heads/"), Why: why}
}

// now returns the commit that the branch leads to, or "" if there is none.
func (o outlet) now(ctx context.Context) (string, error) {
	if o.src.Remote.Local {
		id, err := o.here.Output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", o.ref)
		// The pattern also matches names below this one.
		id, name, _ := strings.Cut(id, " ")
		if err != nil || name != o.ref {
			return "", o.failed(err)
		}
		return id, nil
	}
	refs, _, err := o.src.Remote.List(ctx, o.from.Home, o.ref)
	for _, r := range refs {
		if r.Name == o.ref {
			return r.Commit, nil
		}
	}
	return "", o.failed(err)
}

// send brings the objects to a local repository. No ref points to them yet, so they are
// not visible. With a remote this is part of the push.
func (o outlet) send(ctx context.Context, commit string) error {
	if !o.src.Remote.Local {
		return nil
	}
	if err := o.free(ctx); err != nil {
		return err
	}
	if err := o.here.Run(ctx, "cat-file", "-e", o.from.Base+"^{commit}"); err != nil {
		return fmt.Errorf("%s does not have the base commit %s any more", o.src.Name, o.from.Base)
	}
	pack, err := os.Create(filepath.Join(o.from.Home, "delivery.pack"))
	if err != nil {
		return err
	}
	defer pack.Close()
	want := strings.NewReader(commit + "\n^" + o.from.Base + "\n")
	if err := o.from.Repo.Pipe(ctx, want, pack, "pack-objects", "--quiet", "--revs", "--thin", "--delta-base-offset", "--stdout"); err != nil {
		return err
	}
	if _, err := pack.Seek(0, 0); err != nil {
		return err
	}
	if err := o.here.Pipe(ctx, pack, nil, "index-pack", "--stdin", "--fix-thin", "--strict"); err != nil {
		return o.failed(err)
	}
	return o.failed(o.here.Run(ctx, "rev-list", "--objects", "--quiet", commit, "--not", o.from.Base))
}

// free refuses a branch that a work tree of a local repository is on, be it
// one that has no commit yet.
func (o outlet) free(ctx context.Context) error {
	list, err := o.here.Output(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return o.failed(err)
	}
	head, err := o.here.Output(ctx, "symbolic-ref", "--quiet", "HEAD")
	if _, detached := errors.AsType[*git.Error](err); err != nil && !detached {
		return err
	}
	for line := range strings.Lines(list + "\nbranch " + head) {
		if strings.TrimSpace(line) == "branch "+o.ref {
			return o.refuse("is checked out there")
		}
	}
	return nil
}

// lead makes the branch lead to commit if it leads to old now.
func (o outlet) lead(ctx context.Context, commit, old string) error {
	if !o.src.Remote.Local {
		return o.failed(o.from.Repo.Push(ctx, o.src.Remote, o.ref, commit, old))
	}
	if old == "" {
		old = strings.Repeat("0", len(commit))
	}
	return o.failed(o.here.Run(ctx, "update-ref", "--no-deref", "--create-reflog", "-m", "penstock: deliver", o.ref, commit, old))
}

func (o outlet) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("repository %s: %w", o.src.Name, err)
}
