package worktree

import (
	"errors"
	"os"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// LeadTo writes the .git file of a worktree anew. While a jail shows the worktree,
// the file leads to where the git directory is in there; afterwards to the
// repository again, whatever the agent has put in its place.
func (wt Worktree) LeadTo(to string) error {
	root, err := os.OpenRoot(wt.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Stat("."); err != nil || !wt.owns(info) {
		return errors.Join(err, wt.There())
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

// There returns an error unless the directory that was made still is in its
// place: what lies there otherwise is not the agent's to show.
func (wt Worktree) There() error { return disk.CheckDir(wt.Path, wt.Inode) }
