package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// repoPath is where a jail sees the git directory of a linked workspace. It is
// the attempt's own, as that of a clone is: nothing of the user's is shown, so
// nothing that the user's git obeys can be written, and no credentials in its
// configuration be read. The agent's commits come to the repository when the
// attempt has ended, checked as any stranger's.
const repoPath = "/penstock/repo"

func (w *Workspace) ownRepo() string { return w.path("repo") }

// enclose makes the git directory that a jail shows, and lets the worktree's
// .git lead there.
func (w *Workspace) enclose() error {
	if w.linked.unjailed {
		return nil
	}
	if err := w.base.LendGit(w.ownRepo()); err != nil {
		return err
	}
	if err := disk.CopyFile(filepath.Join(w.ownRepo(), "index"), w.before.Index); err != nil {
		return err
	}
	return w.linked.wt.lead(repoPath)
}

// showLinked adds what git needs besides the worktree's files.
func (w *Workspace) showLinked(spec *sandbox.Spec) {
	if !w.linked.unjailed {
		spec.Mounts = append(spec.Mounts,
			sandbox.Mount{Source: w.ownRepo(), Target: repoPath, Writable: !spec.WorkspaceReadOnly},
			sandbox.Mount{Source: w.base.Objects(), Target: repocache.ObjectsPath})
		return
	}
	if spec.WorkspaceReadOnly { // a jail of ours, to read what an agent without one has left
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: w.linked.wt.Repo, Target: w.linked.wt.Repo})
	}
}

// lead writes the .git file of a worktree anew. While a jail shows the worktree,
// the file leads to where the git directory is in there; afterwards to the
// repository again, whatever the agent has put in its place.
func (wt Worktree) lead(to string) error {
	root, err := os.OpenRoot(wt.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Stat("."); err != nil || !wt.owns(info) {
		return errors.Join(err, wt.there())
	}
	const fresh = ".git.penstock"
	if err := errors.Join(root.RemoveAll(fresh), root.RemoveAll(".git")); err != nil {
		return err
	}
	f, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("gitdir: " + to + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(fresh, ".git")
}

// there returns an error unless the directory that was made still is in its
// place: what lies there otherwise is not the agent's to show.
func (wt Worktree) there() error {
	info, err := os.Lstat(wt.Path)
	if err == nil && (!info.IsDir() || !wt.owns(info)) {
		err = fmt.Errorf("%s is not the directory that was made", disk.Printable(wt.Path))
	}
	return err
}
