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
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A Workspace is the directory that one attempt works in. Its methods must
// not be called at the same time.
type Workspace struct {
	spaces *Spaces
	id     string
	home   string // jobs/<id>: the host's, around the workspace
	dir    string // what the agent gets
	lock   *disk.Lock

	isolation jobs.Isolation
	progress  repocache.Progress
	over      bool             // an overlay: dir has what differs from the base's template
	base      *repocache.Base  // nil where there is no commit to begin from
	layer     *repocache.Layer // of an overlay: what setup wrote over the base's template; nil: nothing of others
	commit    string           // the base commit
	before    changes.State    // the files as the agent finds them
	note      string           // why there is nothing to collect, if there is not
	origin    source.Source
	linked    *linked // a worktree of the user's repository, or nil
	hooked    *hooked // a directory that a program made, or nil
	whole     bool    // what is being recorded is the state before
	inUse     bool    // its agent runs while it is collected
	fewer     int64   // bytes of changed files, where all that may be make too large a patch

	shown     bool    // somebody may have written in it since it was made, or collected
	collected *Change // what the last Collect found; nil after another Show
	saved     bool    // that is safe elsewhere
	receipt   *changes.Receipt
	stays     bool // Close leaves it, though all that can be is safe elsewhere
}

// ID is the id of the request that the workspace was made for.
func (w *Workspace) ID() string { return w.id }

// Dir is the directory of the host that the jail sees as its workspace. Who
// lets anybody write in it calls Show first, jail or not.
func (w *Workspace) Dir() string { return w.dir }

// Base is the commit that the workspace began from, or "" if there is none.
func (w *Workspace) Base() string { return w.commit }

func (w *Workspace) path(name string) string { return filepath.Join(w.home, name) }

// private reports whether the directory is the workspace's own, and goes with it.
func (w *Workspace) private() bool {
	return w.linked != nil || w.hooked != nil || w.dir == w.path("workspace")
}

// there refuses what lies in the place of a directory that others can replace.
func (w *Workspace) there() error {
	switch {
	case w.linked != nil:
		return w.linked.wt.There()
	case w.hooked != nil:
		return w.hooked.there()
	}
	return nil
}

// Beside returns a directory of the host that nobody uses but the caller, and
// that goes with the workspace.
func (w *Workspace) Beside() (string, error) {
	dir := w.path("beside")
	return dir, os.Mkdir(dir, 0o700)
}

// scratch is a workspace without a repository: what is written there is new.
func (w *Workspace) scratch() error {
	w.dir = w.path("workspace")
	w.before = changes.State{Tree: git.EmptyTree, Index: w.path("index")}
	return os.Mkdir(w.dir, 0o755)
}

// clone fills a private directory from the base.
func (w *Workspace) clone(ctx context.Context) error {
	w.dir = w.path("workspace")
	dotGit := filepath.Join(w.dir, ".git")
	if err := w.base.CopyGit(dotGit); err != nil {
		return err
	}
	// The last moment at which the host's git may look into this directory:
	// nobody but us has been there.
	agent := git.Repo{Dir: dotGit, WorkTree: w.dir, Hold: []*os.File{w.lock.File}, Progress: w.progress.Of("checkout")}
	if err := agent.CheckOut(ctx, w.commit); err != nil {
		return fmt.Errorf("check out %s: %w", w.commit, err)
	}
	w.before = changes.State{Tree: w.commit + "^{tree}", Index: w.path("index")}
	if err := disk.CopyFile(w.before.Index, filepath.Join(dotGit, "index")); err != nil {
		return err
	}
	info, err := os.Stat(w.before.Index)
	if err != nil {
		return err
	}
	w.before.Written = info.ModTime()
	return nil
}

// begin finds the commit that the workspace begins from, and gets it onto this
// host.
func (w *Workspace) begin(ctx context.Context, src source.Source, at repocache.Revision) error {
	b, err := w.spaces.cache.Base(ctx, src, at, w.progress)
	if err != nil {
		return err
	}
	w.base, w.commit = b, b.Commit
	return nil
}

// ownGit makes the host's own git directory for the workspace, once. A
// workspace in which nothing changes needs none until it is collected.
func (w *Workspace) ownGit() error {
	if _, err := os.Stat(w.path("git/HEAD")); err == nil {
		return nil
	}
	if w.commit == "" {
		return w.bareGit()
	}
	if err := git.Init(w.path("git"), len(w.commit), "bare = true"); err != nil {
		return err
	}
	// Our own copies of objects stay apart from the base, which is shared.
	alternate := w.base.Objects() + "\n"
	if err := os.WriteFile(w.path("git/objects/info/alternates"), []byte(alternate), 0o600); err != nil {
		return err
	}
	shallow, err := os.ReadFile(filepath.Join(w.base.Git(), "shallow"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(w.path("git/shallow"), shallow, 0o600))
}

// bareGit is ownGit of a workspace that began empty.
func (w *Workspace) bareGit() error {
	if err := git.Init(w.path("git"), len(git.EmptyTree), "bare = true"); err != nil {
		return err
	}
	repo := w.repo()
	repo.Index = w.before.Index
	return repo.Run(context.Background(), "read-tree", "--empty")
}

// catalog returns the files of an index. That of a base is read once for all
// of its workspaces in this process.
func (w *Workspace) catalog(index string) (git.Listing, error) {
	if w.base == nil || index != w.base.Index() {
		known, _, err := git.ReadIndex(index)
		return known, err
	}
	return w.spaces.cache.Listing(w.base)
}

// inPlace takes a directory as it is. If a repository begins there, its files
// are recorded, so that what was changed before does not count as the
// agent's work.
func (w *Workspace) inPlace(ctx context.Context, repo jobs.Repo) error {
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
	w.dir = path
	src, err := w.spaces.access.Locate(ctx, path)
	if refused, ok := errors.AsType[*source.RefusedError](err); ok && refused.Reason == jobs.NotARepository {
		w.note = "no patch: " + path + " is not a git repository"
		return nil
	}
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != src.Root {
		w.note = "no patch: " + path + " is not the top of its git repository"
		return err
	}
	err = w.begin(ctx, src, repocache.Revision{})
	if _, none := errors.AsType[*source.RefError](err); none {
		w.note = "no patch: the repository has no commit yet"
		return nil
	}
	if err != nil {
		return err
	}
	if asked := strings.TrimSpace(repo.Commit); asked != "" && asked != w.commit || repo.Ref != "" {
		return w.checkedOut(ctx, src, repo)
	}
	return w.record(ctx)
}

// checkedOut refuses a job that asks for another commit than the one that
// the directory has: isolation none checks nothing out.
func (w *Workspace) checkedOut(ctx context.Context, src source.Source, repo jobs.Repo) error {
	src.Head = ""
	commit, err := w.spaces.cache.Resolve(ctx, src, repocache.Revision{Ref: repo.Ref, Commit: repo.Commit})
	if err != nil {
		return err
	}
	if commit != w.commit {
		return fmt.Errorf("%s is at commit %s, the job wants %s: isolation none works in the directory as it is; check it out there, or use isolation worktree", src.Name, w.commit, commit)
	}
	return w.record(ctx)
}

// record takes the files as they are for the state before the agent.
func (w *Workspace) record(ctx context.Context) error {
	if err := w.ownGit(); err != nil {
		return err
	}
	start := changes.State{Tree: w.commit + "^{tree}", Index: w.base.Index()}
	before, _, err := w.directory().Snapshot(ctx, start, w.path("index"))
	if err == nil && before.Over != nil {
		w.note = "no patch: " + before.Over.Error()
		return nil
	}
	w.before = before
	return err
}

// Close removes the workspace and all that the host kept beside it. It refuses,
// with an [UnsavedError], while the workspace may hold changes that were not
// [Workspace.Saved]: then everything stays as it is, for the next sweep. So it
// does after [Workspace.KeepWhole], without an error. With isolation none the directory itself stays in any case.
func (w *Workspace) Close() error {
	if w.lock != nil && w.Unsaved() {
		err := errors.Join(&UnsavedError{ID: w.id}, w.leave())
		w.leftover(err)
		return err
	}
	if w.lock != nil && w.stays {
		return w.leave()
	}
	return w.remove()
}

// leave gives the workspace up where it is.
func (w *Workspace) leave() error {
	err := w.layer.Release()
	if w.base != nil {
		err = errors.Join(err, w.base.Release())
	}
	err = errors.Join(err, w.lock.Release())
	w.lock = nil
	return err
}

// remove is Close, whatever is in the workspace.
func (w *Workspace) remove() error {
	if w.lock == nil {
		return nil
	}
	if err := w.withdraw(context.Background()); err != nil {
		// Its record must outlive it, for the next sweep.
		err = errors.Join(err, w.leave())
		w.leftover(err)
		return err
	}
	err := errors.Join(w.spaces.trash.Remove(context.Background(), w.home), w.layer.Release())
	if w.base != nil {
		err = errors.Join(err, w.base.Release())
	}
	if err != nil {
		w.leftover(err)
	}
	err = errors.Join(err, w.lock.Remove())
	w.lock = nil
	return err
}

// withdraw ends what the workspace has outside of the host's own directories.
func (w *Workspace) withdraw(ctx context.Context) error {
	switch {
	case w.linked != nil:
		return w.unlink(ctx)
	case w.hooked != nil:
		return w.unhook(ctx)
	}
	return nil
}

// given reports whether withdraw had begun when the owner died: then there was
// nothing to lose, and what is left may be half of it, or somebody else's.
func (w *Workspace) given() (bool, error) {
	if w.hooked != nil {
		return w.hooked.State == clearing || w.hooked.State == gone, nil
	}
	if w.linked == nil {
		return false, nil
	}
	working, err := w.spaces.worktrees().WorksFor(w.linked.wt.Repo, w.id)
	return !working, err
}

func (w *Workspace) leftover(err error) {
	if w.spaces.cfg.Hooks.Leftover != nil {
		w.spaces.cfg.Hooks.Leftover("workspace "+w.id, err)
	}
}
