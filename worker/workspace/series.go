package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A series is what the agent committed, after it has been checked. Its
// objects are in the workspace's own git directory of the host.
type series struct {
	tip     string
	tree    string // of the last commit
	commits int
	forced  []string // files it added; they count even if an ignore file names them
}

// seriesTime bounds the jail that bundles commits. A repository in which git
// waits for ever costs that much, and then goes without commits.
const seriesTime = time.Minute

// bundleScript runs in the jail, beside whatever the agent left there. Its
// exit code tells that there is nothing to bundle, which git refuses.
const bundleScript = `git bundle create - "$1..HEAD" && exit
new=$(git rev-list -n 1 "$1..HEAD") && [ -z "$new" ] && exit 4
exit 5`

const nothingNew = 4

// series takes over the agent's commits. The agent's git directory is read in
// a jail only; what comes out of there is checked as any stranger's pack. If
// that fails, the error says why, and the files are collected all the same.
func (w *Workspace) series(ctx context.Context) (*series, error) {
	if w.spaces.cfg.Jail == nil {
		return nil, errors.New("this worker has no jail to read them in")
	}
	file, err := os.Create(w.path("agent.bundle"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found, err := w.bundleInJail(ctx, file)
	if !found || err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	tip, pack, err := readBundle(file, "HEAD", len(w.commit))
	if err != nil {
		return nil, err
	}
	limit := w.spaces.cfg.Limits.Bytes
	s, err := foreign{base: w.commit, tip: tip, pack: pack, limit: limit, closed: true}.admit(ctx, w.repo())
	if err != nil {
		return nil, err
	}
	s.forced, err = w.added(ctx, tip)
	return s, err
}

func (w *Workspace) bundleInJail(ctx context.Context, to *os.File) (found bool, err error) {
	limited, cancel := context.WithTimeout(ctx, w.spaces.seriesTime)
	defer cancel()
	var said bytes.Buffer
	out := &git.LimitedWriter{To: to, Left: w.spaces.cfg.Limits.Bytes, Err: &changes.LimitError{What: "bytes of commits", Limit: w.spaces.cfg.Limits.Bytes}}
	spec := sandbox.Spec{
		Args: []string{"sh", "-c", bundleScript, "sh", w.commit},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		WorkspaceReadOnly: true, Preset: sandbox.PresetOffline, Label: w.id, Grace: time.Second,
	}
	w.show(&spec)
	exit, err := sandbox.Run(limited, w.spaces.cfg.Jail, spec, sandbox.Streams{Stdout: out, Stderr: &git.LimitedWriter{To: &said, Left: 4 << 10}})
	switch {
	case err != nil:
		return false, err
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case limited.Err() != nil:
		return false, fmt.Errorf("git did not end within %v", w.spaces.seriesTime)
	case exit.Code == nothingNew:
		return false, nil
	case !exit.Success():
		return false, fmt.Errorf("git ended with %v: %s", exit, disk.Printable(disk.Shorten(strings.TrimSpace(said.String()))))
	}
	return true, nil
}

// added lists the files that a series added to the base.
func (w *Workspace) added(ctx context.Context, tip string) ([]string, error) {
	var added bytes.Buffer
	if err := w.repo().Pipe(ctx, nil, &added, git.DiffTree("-z", "--name-only", "--diff-filter=A", w.commit, tip)...); err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(added.String(), "\x00") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// commits tells the agent's commits, or why they are not there.
func (w *Workspace) commits(ctx context.Context, c *Change) (*series, error) {
	if w.isolation == jobs.IsolationNone || w.commit == "" {
		return nil, nil // they are in the user's repository, where the agent made them
	}
	if w.over && !w.directory().MayHaveCommits() {
		return nil, nil
	}
	s, err := w.series(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if disk.IsFull(err) {
		return nil, err
	}
	if err != nil {
		c.Notes = append(c.Notes, "the agent's commits are not part of the result: "+err.Error())
	}
	return s, nil
}

// publish writes the series as a bundle of one branch. What the agent did not
// commit becomes a last commit, so that the branch and the patch lead to the
// same files.
func (w *Workspace) publish(ctx context.Context, s *series, after changes.State, c *Change) error {
	repo := w.repo()
	repo.Set = append(repo.Set, "user.name=Penstock agent", "user.email=agent@penstock.invalid")
	tree, err := w.treeID(ctx, after.Tree)
	if err != nil {
		return err
	}
	c.Head, c.Commits = s.tip, s.commits
	if tree != s.tree {
		if c.Head, err = repo.Output(ctx, "commit-tree", "-p", s.tip, "-m", uncommitted, tree); err != nil {
			return err
		}
		c.Commits++
	}
	// Nobody else uses this git directory: git's lock would be a process more.
	if err := os.WriteFile(filepath.Join(repo.Dir, "refs/heads", git.AgentBranch), []byte(c.Head+"\n"), 0o600); err != nil {
		return err
	}
	c.Bundle = w.path("bundle")
	return repo.Run(ctx, "bundle", "create", "--quiet", c.Bundle, w.commit+"..refs/heads/"+git.AgentBranch)
}

// treeID names a tree by its id.
func (w *Workspace) treeID(ctx context.Context, tree string) (string, error) {
	if git.IsCommit(tree) {
		return tree, nil
	}
	id, err := w.repo().Output(ctx, "rev-parse", "--verify", tree+"^{tree}")
	if err == nil && !git.IsCommit(id) {
		err = fmt.Errorf("git rev-parse printed %q", id)
	}
	return id, err
}
