package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A Set is the worktrees whose records are in one directory.
type Set struct{ dir string }

// A Worktree is the record of one worktree.
type Worktree struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Branch  string `json:"branch"`
	Repo    string `json:"repo"` // the main repository's git directory
	Job     string `json:"job"`
	Session string `json:"session,omitempty"`
	Batch   string `json:"batch,omitempty"`
	Base    string `json:"base"` // the commit that the job began from
	Head    string `json:"head"` // the commit of the result

	Created   time.Time `json:"created"`
	Refreshed time.Time `json:"refreshed"` // when it was last requested

	// State is "" for a worktree that is ready.
	State string `json:"state,omitempty"`
	// OwnBranch says that the branch was made for the worktree, or for an
	// earlier one of the same result.
	OwnBranch bool `json:"own_branch,omitempty"`

	// Attempt is the workspace that the worktree is or was, "<job>.<epoch>";
	// "" if it was made of a result.
	Attempt string `json:"attempt,omitempty"`
	// The user's position: the work tree that the job named, and its branch.
	OriginalDir    string `json:"original_dir,omitempty"`
	OriginalBranch string `json:"original_branch,omitempty"`
	// Stored is what was read back from the store of an attempt's changes here, and
	// Print the worktree's files at that time.
	Stored *changes.Receipt `json:"stored,omitempty"`
	Print  string           `json:"print,omitempty"`
	Look   []string         `json:"look,omitempty"` // changed files that people should check
	// Inode distinguishes the directory from another one in its place.
	Inode string `json:"inode,omitempty"`
}

// ownBranches begins the names of branches that were not chosen by the user.
const ownBranches = "penstock/job/"

// The states of a record. A working one belongs to an attempt; the attempt ends that
// state, or the sweep does after it.
const (
	adding   = "adding"
	working  = "working"
	removing = "removing"
)

func (wt Worktree) Ready() bool   { return wt.State == "" }
func (wt Worktree) Working() bool { return wt.State == working }

// Half reports whether the record is between two states.
func (wt Worktree) Half() bool { return wt.State == adding || wt.State == removing }

// A Request asks for the worktree of a job's result.
type Request struct {
	Repo                string // a path to the repository, or into it
	Job, Session, Batch string
	Title               string // for a name and a commit's message
	Base                string // the full id of a commit
	Bundle              string // file with the result's commits, as Collect makes it; or ""
	Patch               string // file with the result's patch, used if there is no bundle
	Finished            time.Time

	// Name is the directory's name, made from the title if empty. Dir is the
	// directory itself, Branch the branch; both follow from the name if empty.
	Name, Dir, Branch string
}

// New returns the worktrees whose records are in an existing directory.
func New(dir string) *Set { return &Set{dir: dir} }

// Open opens the records in dir, which it creates.
func Open(dir string) (*Set, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("open worktrees: directory %q is not an absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open worktrees: %w", err)
	}
	return &Set{dir: dir}, nil
}

// Add makes a worktree, or returns the one that the job has, with its request time
// renewed. The second result lists changed files that people should check before they
// work there.
func (t *Set) Add(ctx context.Context, r Request) (Worktree, []string, error) {
	at, err := source.FindLocal(ctx, r.Repo)
	if err == nil {
		if bad := source.CheckReadable(at.Git); bad != nil {
			err = source.Unreachable(r.Repo, bad)
		}
	}
	if err != nil {
		return Worktree{}, nil, err
	}
	repo, err := t.Repo(ctx, at.Git)
	if err != nil {
		return Worktree{}, nil, err
	}
	defer repo.Close()
	wt, err := repo.add(ctx, r)
	if err != nil {
		return Worktree{}, nil, fmt.Errorf("worktree of job %s: %w", r.Job, err)
	}
	if wt.Attempt != "" {
		return wt, wt.Look, nil
	}
	look, err := changes.Notable(ctx, repo.git(), wt.Base, wt.Head)
	return wt, slices.Concat(look, wt.Look), err
}

// A Repo is one repository and its worktrees, with the lock of the repository: git's
// own commands fail when two of them add a worktree at once.
type Repo struct {
	records
	userRepo
}

func newRepo(dir, repo string) *Repo {
	return &Repo{records: records{dir}, userRepo: userRepo{registry: registry{repo}, temp: dir}}
}

// Repo waits for the repository's lock, and completes unfinished changes.
func (t *Set) Repo(ctx context.Context, repo string) (*Repo, error) {
	s := newRepo(filepath.Join(t.dir, source.Digest(repo)), repo)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = disk.WaitLock(ctx, filepath.Join(s.dir, "lock"), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	err = s.disableHooks(ctx)
	if err == nil {
		err = s.settle(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("repair the worktrees of %s: %w", repo, err)
	}
	return s, nil
}

// Close releases the lock. An error does not matter: nothing was written through it.
func (s *Repo) Close() { _ = s.lock.Release() }

// A userRepo is the user's own repository, as git of ours uses it.
type userRepo struct {
	registry
	temp string // of ours, for files that one command needs
	lock *disk.Lock
	env  []string // settings that turn off the hooks of its configuration
}

// git runs in the user's repository. It inherits our lock: if it outlives us, it keeps
// other processes out until it has ended.
func (s *userRepo) git() git.Repo {
	return git.Repo{Dir: s.repo, Hold: []*os.File{s.lock.File}, Env: s.env}
}

// disableHooks turns off the hooks that the repository's configuration defines.
func (s *userRepo) disableHooks(ctx context.Context) error {
	if !disk.Exists(s.repo) {
		return nil // the repository was removed; its worktrees can be removed, too
	}
	quiet, err := s.git().Quiet(ctx)
	s.env = quiet.Env
	return err
}

// settle undoes incomplete additions and completes removals.
func (s *Repo) settle(ctx context.Context) error {
	err := errors.Join(disk.RemoveAll(filepath.Join(s.repo, removed)), disk.RemoveAll(filepath.Join(s.dir, "fill")), disk.RemoveAll(filepath.Join(s.dir, "examine")))
	records, failed := readRecords(s.dir)
	err = errors.Join(err, failed)
	for _, wt := range records {
		switch wt.State {
		case adding:
			err = errors.Join(err, s.undo(ctx, wt))
		case removing:
			err = errors.Join(err, s.erase(ctx, wt))
		default:
			admin, failed := s.begun(wt)
			if failed == nil && admin != "" {
				failed = s.unlock(wt, admin)
			}
			err = errors.Join(err, failed)
		}
	}
	return err
}

func (s *Repo) add(ctx context.Context, r Request) (Worktree, error) {
	records, err := readRecords(s.dir)
	if err != nil {
		return Worktree{}, err
	}
	for _, wt := range newestFirst(records) {
		if wt.Job != r.Job || r.Name != "" && wt.Name != r.Name || wt.State == working {
			continue
		}
		there, err := s.reuse(&wt, r)
		if err != nil || there {
			return wt, err
		}
	}
	wt, err := s.plan(records, r)
	if err != nil {
		return Worktree{}, err
	}
	if wt.Head, err = s.takeCommits(ctx, r); err != nil {
		return Worktree{}, err
	}
	if err := s.freeBranch(ctx, &wt); err != nil {
		return Worktree{}, err
	}
	return s.create(ctx, wt, nil)
}

// fill writes the files of a result, and gives git's record of the worktree the index.
// It returns for which files a filter was not run.
func (s *Repo) fill(ctx context.Context, wt Worktree, admin string) (look []string, err error) {
	own, err := s.privateRepo("fill", wt, len(wt.Head))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, disk.RemoveAll(own.Dir)) }()
	if err := own.Run(ctx, "read-tree", "-u", "--reset", wt.Head); err != nil {
		return nil, fmt.Errorf("check out %s: %w", wt.Head, err)
	}
	filtered, err := own.AllFiltered(ctx)
	if err != nil {
		return nil, err
	}
	for i, name := range filtered {
		if i == maxFiltered {
			look = append(look, fmt.Sprintf("and %d more files without their filter", len(filtered)-i))
			break
		}
		look = append(look, disk.Printable(disk.Shorten(name))+": git's filter was not run")
	}
	return look, disk.CopyFile(filepath.Join(admin, "index"), filepath.Join(own.Dir, "index"))
}

// maxFiltered bounds how many files without their filter are listed.
const maxFiltered = 20

// privateRepo makes a git directory of ours with the repository's objects, for one
// command on the files of a worktree. It defines no program.
func (s *userRepo) privateRepo(name string, wt Worktree, idLen int) (git.Repo, error) {
	dir := filepath.Join(s.temp, name)
	repo := git.Repo{Dir: dir, WorkTree: wt.Path, Hold: []*os.File{s.lock.File}}
	if err := errors.Join(disk.RemoveAll(dir), git.Init(dir, idLen, "bare = false")); err != nil {
		return repo, err
	}
	return repo, os.WriteFile(filepath.Join(dir, "objects/info/alternates"), []byte(git.Quote(filepath.Join(s.repo, "objects"))+"\n"), 0o600)
}

func newestFirst(records []Worktree) []Worktree {
	slices.SortFunc(records, func(a, b Worktree) int { return b.Created.Compare(a.Created) })
	return records
}

// reuse renews the record of an existing worktree. If a user removed the worktree,
// reuse drops the record, so that it can be made again.
func (s *Repo) reuse(wt *Worktree, r Request) (bool, error) {
	admin, err := s.registered(*wt)
	if err != nil {
		return false, err
	}
	info, err := os.Lstat(wt.Path)
	if errors.Is(err, os.ErrNotExist) || admin == "" {
		return false, s.forget(*wt, admin)
	}
	switch {
	case err != nil:
		return false, err
	case !info.IsDir() || !wt.owns(info):
		return false, fmt.Errorf("%s is not the directory that was made; remove it, or name another with --name", disk.Printable(wt.Path))
	case r.Branch != "" && r.Branch != wt.Branch:
		return false, fmt.Errorf("it is there already, at %s on branch %s; remove it first, or give another name", disk.Printable(wt.Path), wt.Branch)
	}
	if r.Dir != "" {
		if dir, err := canonical(r.Dir); err != nil || dir != wt.Path {
			return false, errors.Join(err, fmt.Errorf("it is there already, at %s; remove it first, or give another name", disk.Printable(wt.Path)))
		}
	}
	wt.Refreshed = time.Now()
	if err := os.Chtimes(wt.Path, wt.Refreshed, wt.Refreshed); err != nil {
		return false, err
	}
	return true, s.writeRecord(*wt)
}

// forget drops the record of a worktree whose directory or registration is gone, and
// the registration if it still exists. It leaves the directory: that is not ours any
// more.
func (s *Repo) forget(wt Worktree, admin string) error {
	if admin != "" {
		if err := s.unregister(admin); err != nil {
			return err
		}
	}
	return os.Remove(s.file(wt.Name))
}

// plan chooses the name, directory and branch.
func (s *Repo) plan(records []Worktree, r Request) (Worktree, error) {
	now := time.Now()
	wt := Worktree{
		Name: r.Name, Branch: r.Branch, Repo: s.repo, Job: r.Job, Session: r.Session, Batch: r.Batch,
		Base: r.Base, Created: now, Refreshed: now, State: adding,
	}
	if wt.Name == "" {
		wt.Name = makeSlug(r.Title, r.Job)
	}
	if err := checkSlug(wt.Name); err != nil {
		return wt, err
	}
	for _, other := range records {
		// A name that differs only in case is the same file on some systems.
		if strings.EqualFold(other.Name, wt.Name) && other.Job != wt.Job {
			return wt, fmt.Errorf("the name %s is taken by job %s; give another", wt.Name, other.Job)
		}
	}
	if wt.Branch == "" {
		wt.Branch = ownBranches + wt.Name
	}
	if source.PlainBranch(wt.Branch) != wt.Branch {
		return wt, fmt.Errorf("branch %s is not a plain name", disk.Printable(disk.Shorten(wt.Branch)))
	}
	var err error
	wt.Path, err = s.choosePath(wt.Name, r.Dir)
	return wt, err
}

// freeBranch checks that the branch does not exist, or is at the result.
func (s *Repo) freeBranch(ctx context.Context, wt *Worktree) error {
	tip, err := s.tip(ctx, wt.Branch)
	switch {
	case err != nil:
		return err
	case tip != "" && tip != wt.Head:
		return fmt.Errorf("branch %s exists and is at %s; name another with --branch", wt.Branch, tip)
	}
	wt.OwnBranch = tip == "" || wt.Branch == ownBranches+wt.Name
	return nil
}

// tip is the commit of a branch; "" if there is no such branch.
func (s *userRepo) tip(ctx context.Context, branch string) (string, error) {
	return s.git().Output(ctx, "for-each-ref", "--format=%(objectname)", "--count=1", "refs/heads/"+branch)
}

// create lets git make the worktree, and undoes that if it fails. Its lock is removed
// last: a registration with our lock has never been used. fill, unless nil, makes the
// files.
func (s *Repo) create(ctx context.Context, wt Worktree, fill func(admin string) error) (Worktree, error) {
	made, err := s.try(ctx, wt, fill)
	if err != nil {
		return Worktree{}, errors.Join(err, s.undo(context.WithoutCancel(ctx), wt))
	}
	return made, nil
}

func (s *Repo) try(ctx context.Context, wt Worktree, fill func(admin string) error) (Worktree, error) {
	if err := s.writeRecord(wt); err != nil {
		return wt, err
	}
	if tip, err := s.tip(ctx, wt.Branch); err != nil {
		return wt, err
	} else if tip == "" {
		if err := s.git().Run(ctx, "update-ref", "refs/heads/"+wt.Branch, wt.Head, strings.Repeat("0", len(wt.Head))); err != nil {
			return wt, err
		}
	}
	if err := s.git().Run(ctx, "worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", wt.reason(), "--", wt.Path, wt.Branch); err != nil {
		return wt, err
	}
	admin, err := s.registered(wt)
	if err == nil && admin == "" {
		err = errors.New("git registered no worktree there")
	}
	if err == nil && fill != nil {
		err = fill(admin)
	} else if err == nil {
		wt.Look, err = s.fill(ctx, wt, admin)
	}
	if err != nil {
		return wt, err
	}
	info, err := os.Lstat(wt.Path)
	if err != nil {
		return wt, err
	}
	wt.State, wt.Inode = "", disk.Inode(info)
	if wt.Attempt != "" {
		wt.State = working
	}
	if err := s.writeRecord(wt); err != nil {
		return wt, err
	}
	return wt, s.unlock(wt, admin)
}

// owns reports whether info is that of the directory that was made. Older records do
// not say.
func (wt Worktree) owns(info os.FileInfo) bool { return wt.Inode == "" || wt.Inode == disk.Inode(info) }

// unlock removes our own lock, if it exists.
func (s *Repo) unlock(wt Worktree, admin string) error {
	if lockedFor(admin) != wt.reason() {
		return nil
	}
	return os.Remove(filepath.Join(admin, "locked"))
}
