package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// inPlaceFiles are a directory that was there before, and stays.
type inPlaceFiles struct{ own }

func (*inPlaceFiles) strategy() Strategy { return "" }
func (*inPlaceFiles) private() bool      { return false }

// prepare uses a directory as it is. If a repository begins there, prepare records its
// files, so that earlier changes do not count as the agent's work.
func (f *inPlaceFiles) prepare(ctx context.Context, r Request) error {
	repo := r.Repo
	path, local := source.LocalPath(repo.URL)
	if !local {
		return fmt.Errorf("isolation none needs an absolute path, not %s; use isolation worktree", git.Redact(repo.URL))
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("is not a directory")
	}
	if err != nil {
		return source.Unreachable(path, err)
	}
	f.dir = path
	src, err := f.spaces.access.Locate(ctx, path)
	if refused, ok := errors.AsType[*source.RefusedError](err); ok && refused.Reason == jobs.NotARepository {
		f.note = "no patch: " + path + " is not a git repository"
		return nil
	}
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != src.Root {
		f.note = "no patch: " + path + " is not the top of its git repository"
		return err
	}
	err = f.begin(ctx, src, repocache.Revision{})
	if _, none := errors.AsType[*source.RefError](err); none {
		f.note = "no patch: the repository has no commit yet"
		return nil
	}
	if err != nil {
		return err
	}
	if asked := strings.TrimSpace(repo.Commit); asked != "" && asked != f.commit || repo.Ref != "" {
		return f.checkedOut(ctx, src, repo)
	}
	return f.record(ctx)
}

// checkedOut refuses a job that asks for another commit than the one that
// the directory has: isolation none checks nothing out.
func (f *inPlaceFiles) checkedOut(ctx context.Context, src source.Source, repo jobs.Repo) error {
	src.Head = ""
	commit, err := f.spaces.cache.Resolve(ctx, src, repocache.Revision{Ref: repo.Ref, Commit: repo.Commit})
	if err != nil {
		return err
	}
	if commit != f.commit {
		return fmt.Errorf("%s is at commit %s, the job wants %s: isolation none works in the directory as it is; check it out there, or use isolation worktree", src.Name, f.commit, commit)
	}
	return f.record(ctx)
}

// record takes the files as they are for the state before the agent.
func (f *inPlaceFiles) record(ctx context.Context) error {
	if err := f.ownGit(); err != nil {
		return err
	}
	start := changes.State{Tree: f.commit + "^{tree}", Index: f.base.Index()}
	before, _, err := f.hostDirectory().Snapshot(ctx, start, f.path("index"))
	if err == nil && before.Over != nil {
		f.note = "no patch: " + before.Over.Error()
		return nil
	}
	f.before = before
	return err
}
