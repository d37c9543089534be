package workspace

import (
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

func (w *linkedFiles) ownRepo() string { return w.path("repo") }

// enclose makes the git directory that a jail shows, and lets the worktree's
// .git lead there.
func (w *linkedFiles) enclose() error {
	if w.unjailed {
		return nil
	}
	if err := w.base.LendGit(w.ownRepo()); err != nil {
		return err
	}
	if err := disk.CopyFile(filepath.Join(w.ownRepo(), "index"), w.before.Index); err != nil {
		return err
	}
	return w.worktree.LeadTo(repoPath)
}

// show adds the worktree's files, and what git needs besides them.
func (w *linkedFiles) show(spec *sandbox.Spec) {
	w.own.show(spec)
	if !w.unjailed {
		spec.Mounts = append(spec.Mounts,
			sandbox.Mount{Source: w.ownRepo(), Target: repoPath, Writable: !spec.WorkspaceReadOnly},
			sandbox.Mount{Source: w.base.Objects(), Target: repocache.ObjectsPath})
		return
	}
	if spec.WorkspaceReadOnly { // a jail of ours, to read the files of an agent without one
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: w.worktree.Repo, Target: w.worktree.Repo})
	}
}
