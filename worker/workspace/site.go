package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/internal/source"
	"github.com/penstock-run/penstock/worker/worktree"
)

// A site is where a workspace is, and what its files were made of. The strategies
// fill it in.
type site struct {
	spaces *Spaces
	id     string
	home   string // jobs/<id>: the host's, around the workspace
	dir    string // the agent's directory
	lock   *disk.Lock

	isolation jobs.Isolation
	progress  repocache.Progress
	base      *repocache.Base  // nil where there is no commit to begin from
	layer     *repocache.Layer // of an overlay: what setup wrote over the base's template; nil: nothing of others
	commit    string           // the base commit
	before    changes.State    // the files as the agent finds them
	note      string           // why there is nothing to collect, if there is not
	origin    source.Source
	worktree  *worktree.Worktree // of the user's repository that it is; nil: it is none
	reused    bool               // the worktree is one that an earlier attempt left
}

func (s *site) path(name string) string { return filepath.Join(s.home, name) }

// begin finds the commit that the workspace begins from, and gets it onto this
// host.
func (s *site) begin(ctx context.Context, src source.Source, at repocache.Revision) error {
	b, err := s.spaces.cache.Base(ctx, src, at, s.progress)
	if err != nil {
		return err
	}
	s.base, s.commit = b, b.Commit
	return nil
}

// ownGit makes the host's own git directory for the workspace, once. A
// workspace in which nothing changes needs none until it is collected.
func (s *site) ownGit() error {
	if _, err := os.Stat(s.path("git/HEAD")); err == nil {
		return nil
	}
	if s.commit == "" {
		return s.bareGit()
	}
	if err := git.Init(s.path("git"), len(s.commit), "bare = true"); err != nil {
		return err
	}
	// Our own copies of objects stay apart from the base, which is shared.
	alternate := s.base.Objects() + "\n"
	if err := os.WriteFile(s.path("git/objects/info/alternates"), []byte(alternate), 0o600); err != nil {
		return err
	}
	shallow, err := os.ReadFile(filepath.Join(s.base.Git(), "shallow"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.WriteFile(s.path("git/shallow"), shallow, 0o600))
}

// bareGit is ownGit of a workspace that began empty.
func (s *site) bareGit() error {
	if err := git.Init(s.path("git"), len(git.EmptyTree), "bare = true"); err != nil {
		return err
	}
	repo := s.repo()
	repo.Index = s.before.Index
	return repo.Run(context.Background(), "read-tree", "--empty")
}

// catalog returns the files of an index. That of a base is read once for all
// of its workspaces in this process.
func (s *site) catalog(index string) (git.Listing, error) {
	if s.base == nil || index != s.base.Index() {
		known, _, err := git.ReadIndex(index)
		return known, err
	}
	return s.spaces.cache.Listing(s.base)
}

// releaseShared lets the base and the layer go, which other workspaces use, too.
func (s *site) releaseShared() error {
	err := s.layer.Release()
	if s.base != nil {
		err = errors.Join(err, s.base.Release())
	}
	return err
}

// leave gives the workspace up where it is.
func (s *site) leave() error {
	err := errors.Join(s.releaseShared(), s.lock.Release())
	s.lock = nil
	return err
}

// empty reports whether nothing was written in a directory that was empty, and
// nothing by setup.
func (s *site) empty() bool {
	return s.layer == nil && disk.IsEmpty(s.dir)
}

func (s *site) leftover(err error) {
	if s.spaces.cfg.Hooks.Leftover != nil {
		s.spaces.cfg.Hooks.Leftover("workspace "+s.id, err)
	}
}

// hostDirectory describes the agent's directory, for collecting what lies in it.
func (s *site) hostDirectory() *changes.Directory {
	return &changes.Directory{
		Path: s.dir, Home: s.home, Repo: s.repo(), Base: s.commit, Trash: s.spaces.trash,
		Limits: s.spaces.cfg.Limits.changes(), Listing: s.catalog,
	}
}

// repo is the host's own git directory for this workspace. What a power cut
// takes of it is collected again, so nothing waits for the disk; and a pack
// stays a pack, which is one file for any number of objects.
func (s *site) repo() git.Repo {
	return git.Repo{
		Dir: s.path("git"), Hold: []*os.File{s.lock.File},
		Set: []string{"core.fsync=none", "fastimport.unpackLimit=1"},
	}
}

// unlockGit removes the locks of a git that was killed, which would keep the next
// one from its work. Only ours runs there, and it has ended.
func (s *site) unlockGit() (err error) {
	for _, pattern := range []string{"index*.lock", "git/*.lock", "git/refs/heads/*.lock"} {
		locks, globbed := filepath.Glob(s.path(pattern))
		err = errors.Join(err, globbed)
		for _, lock := range locks {
			err = errors.Join(err, os.Remove(lock))
		}
	}
	return err
}
