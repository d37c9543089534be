package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/internal/source"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// Config says where workspaces live, and bounds them.
type Config struct {
	// Dir is the part of the data directory that belongs to workspaces. All workers of
	// a host with the same Dir share the fetched repositories.
	Dir string
	// FetchEnv is the environment in which git fetches from a URL, for its
	// credential helpers and ssh keys. Empty means that it has none. It is
	// never used for anything an agent could reach.
	FetchEnv []string
	// Jail is where git reads the repository that an agent leaves behind, to
	// take its commits. Without one only the files are collected.
	Jail sandbox.Backend
	// Pool is the mark of those jails, as of all of the worker's, see package poolmark.
	Pool string
	// Salvage is called by Sweep with each workspace whose owner died, before it is
	// removed: Collect it, store its changes, and confirm that with Saved. It must not
	// Close the workspace. Without a confirmation the workspace stays, and the next
	// sweep tries again; without a Salvage every changed workspace stays.
	Salvage func(ctx context.Context, w *Workspace) error
	// Strategy is how jobs get files of their own, Auto if empty. One that is
	// named and cannot be used is an error.
	Strategy Strategy
	// Worktrees is where the records of worktrees are, see [worktree.Open].
	// Without it there is no strategy Linked, and no stale worktree is removed.
	Worktrees string
	// Programs make and remove the workspaces of strategy Hook.
	Programs programs
	// Stored reports whether the changes of an attempt, "<job>.<epoch>", still are in
	// the store. Without it no worktree with changes of a job is removed for its age.
	Stored func(ctx context.Context, attempt string, r changes.Receipt) (bool, error)
	// Limits of fetching, caching and collecting; zero fields have defaults.
	Limits Limits
	Hooks  Hooks
}

// Hooks let a program watch Spaces. Every field may be nil. Hooks run on the
// caller's goroutine and must not block.
type Hooks struct {
	// Fetched is called after something was fetched from a repository.
	Fetched func(repo string, took time.Duration)
	// Leftover reports something that could not be cleaned up, or that was
	// found damaged and is made anew.
	Leftover func(what string, err error)
}

// Limits bound workspaces.
type Limits struct {
	Files   int   // changed files; default 50,000
	Entries int   // files and directories that are looked at; default 2,000,000
	Bytes   int64 // content of all changed files; default 1 GiB
	Patch   int64 // bytes of the patch; default 128 MiB
	Depth   int   // directories above a file; default 128
	Path    int   // bytes of a path; default 2,048

	Artifacts     int   // files that Pick hands out; default 200
	ArtifactBytes int64 // content of them all; default 256 MiB

	// History is the size of a repository's objects up to which a workspace
	// gets all of its history, default 64 MiB. Above, it gets 50 commits.
	History int64
	// MonitoredFiles is how many files a repository has at least for the git of an agent
	// to be told, over an overlay, which of them were written: default 5,000. Below, git
	// is as fast when it looks at all.
	MonitoredFiles int
	// BaseAge and BaseBytes decide which bases Sweep evicts: those not used for that
	// long, default a week, and the oldest beyond that size, default 20 GiB. A mirror
	// goes when it has no bases and is as old.
	BaseAge   time.Duration
	BaseBytes int64
	// WorktreeAge is how long a worktree of a repository must be unused before Sweep
	// removes it; default 30 days, negative is never.
	WorktreeAge time.Duration
	// WholeAge and WholeBytes decide how long Sweep leaves workspaces that were
	// too large to be stored whole: for so long, default a week, and the newest of
	// them up to so much in all, default 20 GiB; negative keeps none.
	WholeAge   time.Duration
	WholeBytes int64
}

func (l Limits) withDefaults() Limits {
	c := l.changes().WithDefaults()
	l.Files, l.Entries, l.Bytes, l.Patch, l.Depth, l.Path = c.Files, c.Entries, c.Bytes, c.Patch, c.Depth, c.Path
	l.Artifacts, l.ArtifactBytes = c.Artifacts, c.ArtifactBytes
	setDefault(&l.History, 64<<20)
	setDefault(&l.MonitoredFiles, 5000)
	setDefault(&l.BaseAge, 7*24*time.Hour)
	setDefault(&l.BaseBytes, 20<<30)
	setDefault(&l.WorktreeAge, 30*24*time.Hour)
	setDefault(&l.WholeAge, 7*24*time.Hour)
	setDefault(&l.WholeBytes, 20<<30)
	return l
}

// changes are the limits of collecting.
func (l Limits) changes() changes.Limits {
	return changes.Limits{
		Files: l.Files, Entries: l.Entries, Bytes: l.Bytes, Patch: l.Patch, Depth: l.Depth, Path: l.Path,
		Artifacts: l.Artifacts, ArtifactBytes: l.ArtifactBytes,
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Spaces makes workspaces. It is safe for use by many goroutines, and by many
// processes on one directory.
type Spaces struct {
	cfg    Config
	access source.Access
	trash  *disk.Trash
	cache  *repocache.Cache
	homes  homes
	trials trials

	commitsTime time.Duration // shorter in tests
}

// Open makes the directories that workspaces need.
func Open(ctx context.Context, cfg Config) (*Spaces, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, fmt.Errorf("open workspaces: directory %q is not an absolute path", cfg.Dir)
	}
	setDefault(&cfg.Strategy, Auto)
	setDefault(&cfg.Programs.Time, 10*time.Minute)
	cfg.Limits = cfg.Limits.withDefaults()
	s := &Spaces{
		cfg: cfg, access: source.Access{Env: cfg.FetchEnv, Trust: filepath.Join(cfg.Dir, "gitconfig")},
		trash: &disk.Trash{Dir: filepath.Join(cfg.Dir, "trash")}, homes: homes{cfg.Dir}, commitsTime: commitsTime,
	}
	s.cache = repocache.New(repocache.Config{
		Dir: cfg.Dir, Access: s.access, Jail: s.jail(), Trash: s.trash, History: cfg.Limits.History, MonitoredFiles: cfg.Limits.MonitoredFiles,
		Fetched: cfg.Hooks.Fetched, Leftover: cfg.Hooks.Leftover,
	})
	for _, sub := range []string{"mirrors", "jobs", "locks", "trash"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open workspaces: %w", err)
		}
	}
	if err := s.access.WriteTrust(s.trash.Dir); err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	if _, err := (git.Repo{Dir: cfg.Dir}).Output(ctx, "version"); err != nil {
		return nil, fmt.Errorf("open workspaces: %w", err)
	}
	return s, nil
}

// A Request asks for one workspace. ID is "<job>.<epoch>": an attempt has one
// workspace, and no two have the same.
type Request struct {
	ID        string
	Repo      jobs.Repo
	Isolation jobs.Isolation
	Plain     bool // the files must lie in a directory of the host, as they are

	Unjailed bool // the agent sees the host's own paths

	// Progress is called, now and then, with the progress of a fetch or a checkout. It
	// must not block.
	Progress func(event.WorkspaceProgress)

	// For a worktree of the user's repository: the title for its name, and the earlier
	// attempt whose worktree is taken up if it exists, "<job>.<epoch>".
	Title, Session, Batch string
	Again                 string
}

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,127}$`) })

// Prepare makes a workspace. The caller must Close it.
func (s *Spaces) Prepare(ctx context.Context, r Request) (*Workspace, error) {
	w, err := s.reserve(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	w.isolation, w.progress = r.Isolation, repocache.Throttled(r.Progress)
	w.files, err = s.files(ctx, r, w.site)
	if err == nil {
		err = w.files.prepare(ctx, r)
	}
	if err == nil {
		err = w.writeRecord(w.Strategy())
	}
	if err != nil {
		return nil, errors.Join(disk.BlameFull(s.cfg.Dir, err), w.remove())
	}
	return w, nil
}

// jail is where git reads what an agent wrote.
func (s *Spaces) jail() poolmark.Jail { return poolmark.Jail{Backend: s.cfg.Jail, Mark: s.cfg.Pool} }

// reserve makes the directory of an attempt and locks it for its life.
func (s *Spaces) reserve(ctx context.Context, id string) (*Workspace, error) {
	if !idPattern().MatchString(id) {
		return nil, fmt.Errorf("workspace id %q is not made of a-z, 0-9, '.' and '-'", id)
	}
	l, err := s.homes.lock(id)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	w := newWorkspace(&site{spaces: s, id: id, home: s.homes.dir(id), lock: l}, nil)
	// What is there now has no owner: we hold its lock.
	if err := s.trash.Remove(ctx, w.home); err != nil {
		return nil, errors.Join(err, l.Remove())
	}
	if err := os.Mkdir(w.home, 0o700); err != nil {
		return nil, errors.Join(err, l.Remove())
	}
	return w, nil
}

// Bring adds a commit that is in no repository to this host's copy of a repository, so
// that jobs of that repository can begin from it. Pack has the objects that its parent
// lacks. The repository is only read. The commit exists for as long as the host keeps
// its copy of the repository.
func (s *Spaces) Bring(ctx context.Context, repo, parent, commit string, pack io.Reader) error {
	src, err := s.access.Locate(ctx, repo)
	if err != nil {
		return err
	}
	return s.cache.Bring(ctx, src, repocache.ForeignPack{Parent: parent, Commit: commit, Pack: pack})
}

// Evict removes unused bases and layers, the oldest first, until there is enough room,
// and then mirrors without bases. It returns how many it removed. Removed entries are
// fetched and made again when a job needs them.
func (s *Spaces) Evict(ctx context.Context, enough func() bool) (int, error) {
	return s.cache.Evict(ctx, func() (map[string]bool, error) { return s.homes.needed(nil) }, enough)
}
