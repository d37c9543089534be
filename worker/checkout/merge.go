package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// Merges makes commits of patches and merges them with each other, as git merge would, in an
// object store of its own. The work tree and its repository stay as they are. No merge driver
// runs, since none is defined; those that are built into git do, where attributes of the work tree name
// them.
type Merges struct {
	repo git.Repo
	drop func() error
}

// Merges begins. Close ends it.
func (t *Tree) Merges() (*Merges, error) {
	if t.user.Dir == "" {
		return nil, fmt.Errorf("merge in %s: %w", t.user.Top, git.ErrNoRepository)
	}
	shadow, drop, err := t.shadow()
	if err != nil {
		return nil, err
	}
	m := &Merges{repo: shadow.Repo, drop: drop}
	m.repo.Set = append(slices.Clone(m.repo.Set), "core.fsync=none") // nothing of it is kept
	// A patch of a few bytes may say that it has a file of many gigabytes.
	m.repo.Env = append(slices.Clone(m.repo.Env), "GIT_ALLOC_LIMIT="+maxFile)
	return m, nil
}

// Close removes all commits.
func (m *Merges) Close() error { return m.drop() }

// Commit makes a commit of a patch on its base, which the user's repository must have.
func (m *Merges) Commit(ctx context.Context, base string, patch []byte) (string, error) {
	return commitOn(ctx, m.repo, Branch{Base: base, Message: "Result"}, patch)
}

// ErrOldGit: the git of this host cannot merge commits without a work tree.
var ErrOldGit = errors.New("git here is older than 2.38, and cannot merge without a work tree")

// A Merged is what a merge of two commits came to. Where it is not clean, Conflicts are the paths that
// have conflicts.
type Merged struct {
	Clean     bool
	Conflicts []string
	tree      string
}

// Merge merges two commits and returns the commit of both, if that is clean.
func (m *Merges) Merge(ctx context.Context, ours, theirs string) (both string, merged Merged, err error) {
	if merged, err = merge(ctx, m.repo, ours, theirs); err != nil || !merged.Clean {
		return "", merged, err
	}
	r := identified(m.repo, "@0 +0000")
	both, err = r.Output(ctx, "commit-tree", "-p", ours, "-p", theirs, "-m", "Merge", merged.tree)
	return both, merged, err
}

// Try merges two commits and keeps nothing of it. It may be called from any goroutine.
func (m *Merges) Try(ctx context.Context, ours, theirs string) (merged Merged, err error) {
	dir, err := os.MkdirTemp(m.repo.Dir, "trial-")
	if err != nil {
		return merged, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := m.repo
	r.Env = append(slices.Clone(r.Env), "GIT_OBJECT_DIRECTORY="+dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+git.Quote(filepath.Join(r.Dir, "objects")))
	return merge(ctx, r, ours, theirs)
}

func merge(ctx context.Context, r git.Repo, ours, theirs string) (merged Merged, err error) {
	var out bytes.Buffer
	bounded := &git.LimitedWriter{To: &out, Left: maxMergeOutput, Err: errors.New("git names too many conflicts")}
	err = r.Pipe(ctx, nil, bounded, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
	names := strings.Split(strings.TrimSuffix(out.String(), "\x00"), "\x00")
	merged.tree = names[0]
	failed, said := errors.AsType[*git.Error](err)
	switch {
	case said && failed.Code == 129: // the status of a wrong usage
		return merged, ErrOldGit
	case said && failed.Code == 1 && git.IsCommit(merged.tree):
		for _, path := range names[1:] {
			// A file in the way of a directory is named by its commit, too.
			path = strings.TrimSuffix(strings.TrimSuffix(path, "~"+ours), "~"+theirs)
			if !slices.Contains(merged.Conflicts, path) {
				merged.Conflicts = append(merged.Conflicts, path)
			}
		}
		return merged, nil
	}
	merged.Clean = err == nil
	return merged, err
}

// maxFile bounds each file that is merged.
const maxFile = "512m"

// maxMergeOutput bounds the names of files with conflicts of one merge.
const maxMergeOutput = 16 << 20
