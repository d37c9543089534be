package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// cloneFiles are checked out for one job.
type cloneFiles struct{ own }

func (*cloneFiles) strategy() Strategy { return Clone }

// prepare checks the commit out in a private directory.
func (f *cloneFiles) prepare(ctx context.Context, r Request) error {
	if err := f.begin(ctx, f.origin, repocache.Revision{Ref: r.Repo.Ref, Commit: r.Repo.Commit}); err != nil {
		return err
	}
	f.dir = f.path("workspace")
	dotGit := filepath.Join(f.dir, ".git")
	if err := f.base.CopyGit(dotGit); err != nil {
		return err
	}
	// The host's git may read this directory for the last time: only this process has
	// written in it.
	agent := git.Repo{Dir: dotGit, WorkTree: f.dir, Hold: []*os.File{f.lock.File}, Progress: f.progress.Of("checkout")}
	if err := agent.CheckOut(ctx, f.commit); err != nil {
		return fmt.Errorf("check out %s: %w", f.commit, err)
	}
	f.before = changes.State{Tree: f.commit + "^{tree}", Index: f.path("index")}
	if err := disk.CopyFile(f.before.Index, filepath.Join(dotGit, "index")); err != nil {
		return err
	}
	info, err := os.Stat(f.before.Index)
	if err != nil {
		return err
	}
	f.before.Written = info.ModTime()
	return nil
}
