package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Workspace is the directory that one attempt works in. Its methods must
// not be called at the same time.
type Workspace struct {
	spaces *Spaces
	id     string
	home   string // jobs/<id>: the host's, around the workspace
	dir    string // what the agent gets
	lock   *lock

	isolation jobs.Isolation
	base      *base  // nil where there is no commit to begin from
	commit    string // the base commit
	before    state  // the files as the agent finds them
	note      string // why there is nothing to collect, if there is not
}

// A state is a tree of files, as an object and as an index, in the workspace's
// own git directory of the host.
type state struct {
	tree    string
	index   string
	written time.Time // zero if the index knows nothing of the workspace's files
	forced  []string  // more files that count whatever ignore files say; sorted
}

// ID is the id of the request that the workspace was made for.
func (w *Workspace) ID() string { return w.id }

// Dir is the directory of the host that the jail sees as its workspace.
func (w *Workspace) Dir() string { return w.dir }

// Base is the commit that the workspace began from, or "" if there is none.
func (w *Workspace) Base() string { return w.commit }

func (w *Workspace) path(name string) string { return filepath.Join(w.home, name) }

// Beside returns a directory of the host that nobody uses but the caller, and
// that goes with the workspace.
func (w *Workspace) Beside() (string, error) {
	dir := w.path("beside")
	return dir, os.Mkdir(dir, 0o700)
}

// empty is a workspace without a repository.
func (w *Workspace) empty() error {
	w.dir = w.path("workspace")
	w.note = "no patch: the job has no repository"
	return os.Mkdir(w.dir, 0o755)
}

// clone fills a private directory from a base.
func (w *Workspace) clone(ctx context.Context, repo jobs.Repo) error {
	src, err := w.spaces.locate(repo.URL)
	if err != nil {
		return err
	}
	if err := w.begin(ctx, src, repo.Ref, repo.Commit); err != nil {
		return err
	}
	w.dir = w.path("workspace")
	dotGit := filepath.Join(w.dir, ".git")
	if err := os.MkdirAll(dotGit, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(dotGit, os.DirFS(w.base.git())); err != nil {
		return fmt.Errorf("copy git directory: %w", err)
	}
	// The last moment at which the host's git may look into this directory:
	// nobody but us has been there.
	agent := git.Repo{Dir: dotGit, WorkTree: w.dir, Hold: []*os.File{w.lock.file}}
	if err := agent.Run(ctx, "read-tree", "-u", "--reset", w.commit); err != nil {
		return fmt.Errorf("check out %s: %w", w.commit, err)
	}
	w.before = state{tree: w.commit + "^{tree}", index: w.path("index")}
	if err := copyFile(w.before.index, filepath.Join(dotGit, "index")); err != nil {
		return err
	}
	info, err := os.Stat(w.before.index)
	if err != nil {
		return err
	}
	w.before.written = info.ModTime()
	return nil
}

// begin finds the commit that the workspace begins from, gets it onto this
// host, and makes the host's own git directory for the workspace.
func (w *Workspace) begin(ctx context.Context, src source, ref, commit string) error {
	m, err := w.spaces.mirror(src)
	if err != nil {
		return err
	}
	t, err := m.resolve(ctx, ref, commit)
	if err != nil {
		return err
	}
	if w.base, err = m.base(ctx, t); err != nil {
		return err
	}
	w.commit = t.commit
	if err := initGit(w.path("git"), len(t.commit), "bare = true"); err != nil {
		return err
	}
	// Our own copies of objects stay apart from the base, which is shared.
	alternate := filepath.Join(w.base.git(), "objects") + "\n"
	if err := os.WriteFile(w.path("git/objects/info/alternates"), []byte(alternate), 0o600); err != nil {
		return err
	}
	shallow, err := os.ReadFile(filepath.Join(w.base.git(), "shallow"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(w.path("git/shallow"), shallow, 0o600))
}

// inPlace takes a directory as it is. If a repository begins there, its files
// are recorded, so that what was changed before does not count as the
// agent's work.
func (w *Workspace) inPlace(ctx context.Context, repo jobs.Repo) error {
	path, local := localPath(repo.URL)
	if !local {
		return fmt.Errorf("isolation none needs an absolute path, not %s; use isolation worktree", git.Redact(repo.URL))
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("is not a directory")
	}
	if err != nil {
		return unreachable(path, err)
	}
	w.dir = path
	src, err := w.spaces.locate(path)
	if _, none := errors.AsType[*NotGitError](err); none {
		w.note = "no patch: " + path + " is not a git repository"
		return nil
	}
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != src.root {
		w.note = "no patch: " + path + " is not the top of its git repository"
		return err
	}
	err = w.begin(ctx, src, "", "")
	if _, none := errors.AsType[*RefError](err); none {
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
func (w *Workspace) checkedOut(ctx context.Context, src source, repo jobs.Repo) error {
	m, err := w.spaces.mirror(src)
	if err != nil {
		return err
	}
	src.head = ""
	t, err := m.resolve(ctx, repo.Ref, repo.Commit)
	if err != nil {
		return err
	}
	if t.commit != w.commit {
		return fmt.Errorf("%s is at commit %s, the job wants %s: isolation none works in the directory as it is; check it out there, or use isolation worktree", src.name, w.commit, t.commit)
	}
	return w.record(ctx)
}

// record takes the files as they are for the state before the agent.
func (w *Workspace) record(ctx context.Context) error {
	start := state{tree: w.commit + "^{tree}", index: w.base.index()}
	before, _, err := w.snapshot(ctx, start, w.path("index"))
	if limit, ok := errors.AsType[*LimitError](err); ok {
		w.note = "no patch: " + limit.Error()
		return nil
	}
	w.before = before
	return err
}

// Close removes the workspace and all that the host kept beside it. With
// isolation none the directory itself stays.
func (w *Workspace) Close() error {
	if w.lock == nil {
		return nil
	}
	err := w.spaces.trash.remove(context.Background(), w.home)
	if w.base != nil {
		err = errors.Join(err, w.base.release())
	}
	if err != nil && w.spaces.cfg.Hooks.Leftover != nil {
		w.spaces.cfg.Hooks.Leftover("workspace "+w.id, err)
	}
	err = errors.Join(err, w.lock.remove())
	w.lock = nil
	return err
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
