package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A KeptError says why a worktree was not removed.
type KeptError struct {
	Path string
	Why  string
}

func (e *KeptError) Error() string {
	return fmt.Sprintf("worktree %s %s", disk.Printable(e.Path), e.Why)
}

// Remove removes a worktree and its registration in the repository. Without force it
// returns a [KeptError] if work would be lost, if git's lock is on the worktree, or if
// a process works in it, and leaves a branch whose commits are nowhere else. With force
// it removes the branch, too, if the branch was made with the worktree. It returns the
// branch that remains, with the reason.
func (t *Set) Remove(ctx context.Context, wt Worktree, force bool) (left string, err error) {
	s, err := t.Repo(ctx, wt.Repo)
	if err != nil {
		return "", err
	}
	defer s.Close()
	records, err := readRecords(s.dir)
	if err != nil {
		return "", err
	}
	for _, now := range records {
		if now.Name != wt.Name || !now.Created.Equal(wt.Created) {
			continue
		}
		if left, err = s.remove(ctx, now, force); err != nil {
			return "", fmt.Errorf("remove worktree %s: %w", now.Name, err)
		}
	}
	return left, nil // a missing worktree is removed
}

func (s *Repo) remove(ctx context.Context, wt Worktree, force bool) (left string, err error) {
	if _, err := os.Stat(s.repo); errors.Is(err, os.ErrNotExist) {
		// The repository was removed with its history: the files in the worktree may be
		// all that is left.
		if !force && disk.Exists(wt.Path) {
			return "", &KeptError{wt.Path, "has lost its repository; use --force to remove it"}
		}
		return "", s.erase(ctx, wt)
	}
	admin, err := s.registered(wt)
	if err != nil {
		return "", err
	}
	if wt.State == working {
		return "", &KeptError{wt.Path, "belongs to a job; it can go when that has ended, and after a crash penstock clean sees to it"}
	}
	if !force {
		if err := s.mayGo(ctx, wt, admin); err != nil {
			return "", err
		}
	}
	if wt.OwnBranch && !force {
		alone, err := s.alone(ctx, wt, "refs/heads/"+wt.Branch)
		if err != nil || alone != "0" {
			wt.OwnBranch, left = false, wt.Branch
		}
	}
	wt.State = removing
	if err := s.writeRecord(wt); err != nil {
		return "", err
	}
	return left, s.erase(ctx, wt)
}

// mayGo returns why a worktree must stay.
func (s *userRepo) mayGo(ctx context.Context, wt Worktree, admin string) error {
	keep := func(why string) error { return &KeptError{wt.Path, why + "; use --force to remove it all the same"} }
	switch {
	case !disk.Exists(wt.Path):
		return nil
	case admin == "":
		return keep("is not known to its repository any more")
	case lockedFor(admin) != "":
		return keep("is locked by git worktree lock")
	case occupied(wt.Path):
		return keep("is in use by a process")
	}
	// A process that can write in the worktree must not make our git read elsewhere.
	if repo, _, err := source.Main(admin); err != nil || repo != s.repo {
		return keep("has a registration that leads elsewhere")
	}
	head, err := s.head(ctx, admin)
	if err != nil {
		return keep("has no commit (" + err.Error() + ")")
	}
	dirty, err := s.dirty(ctx, wt, admin, head)
	if err != nil {
		return keep("cannot be examined (" + err.Error() + ")")
	}
	if dirty != "" {
		return keep("has uncommitted changes in " + dirty)
	}
	alone, err := s.alone(ctx, wt, head, "^"+wt.Head)
	if err != nil {
		return keep("cannot be examined (" + err.Error() + ")")
	}
	if alone != "0" {
		return keep("has " + alone + " commits that no remote and no other branch has")
	}
	return nil
}

// alone counts the commits that are in no other branch, tag or remote.
func (s *userRepo) alone(ctx context.Context, wt Worktree, revisions ...string) (string, error) {
	args := append([]string{"rev-list", "--count"}, revisions...)
	return s.git().Output(ctx, append(args, "--not", "--exclude="+wt.Branch, "--branches", "--tags", "--remotes")...)
}

// head is the commit of a worktree. It does not run git in the worktree, because an
// agent may have written what git would read there.
func (s *userRepo) head(ctx context.Context, admin string) (string, error) {
	line, err := source.ReadLine(filepath.Join(admin, "HEAD"))
	if err != nil || git.IsCommit(line) {
		return line, err
	}
	branch, ok := strings.CutPrefix(line, "ref: refs/heads/")
	if !ok {
		return "", errors.New("its HEAD is neither a commit nor a branch")
	}
	tip, err := s.tip(ctx, branch)
	if err == nil && tip == "" {
		err = fmt.Errorf("its branch %s does not exist", disk.Printable(disk.Shorten(branch)))
	}
	return tip, err
}

// headBranch is the branch that a worktree is on, if its name is a plain one.
func headBranch(admin string) (string, error) {
	line, err := source.ReadLine(filepath.Join(admin, "HEAD"))
	branch, ok := strings.CutPrefix(line, "ref: refs/heads/")
	if err == nil && (!ok || source.PlainBranch(branch) != branch) {
		err = errors.New("its HEAD is not on a branch with a plain name")
	}
	return branch, err
}

// dirty names a file that is neither committed nor, in the worktree of a job, stored.
// Git compares with a configuration of our own.
func (s *userRepo) dirty(ctx context.Context, wt Worktree, admin, head string) (_ string, err error) {
	if wt.Print != "" {
		if now, err := printOf(wt, changes.Limits{}.WithDefaults()); err == nil && now == wt.Print {
			return "", nil
		}
	}
	repo, err := s.privateRepo("examine", wt, len(head))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, disk.RemoveAll(repo.Dir)) }()
	if err := os.WriteFile(filepath.Join(repo.Dir, "HEAD"), []byte(head+"\n"), 0o600); err != nil {
		return "", err
	}
	if err := copyIndex(filepath.Join(repo.Dir, "index"), admin); err != nil {
		return "", err
	}
	return uncommittedIn(ctx, repo)
}

// maxIndex bounds how much is read of an index that another program wrote.
const maxIndex = 512 << 20

func copyIndex(to, admin string) error {
	from, err := os.OpenFile(filepath.Join(admin, "index"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxIndex {
		return errors.Join(err, errors.New("its index is not a file that git would write"))
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.LimitReader(from, maxIndex))
	return errors.Join(err, f.Close())
}

// uncommittedIn names a file that is not committed. Git would look into the repository
// of a submodule, which is not the user's: any file there counts.
func uncommittedIn(ctx context.Context, repo git.Repo) (string, error) {
	var out bytes.Buffer
	if err := repo.Pipe(ctx, nil, &out, "status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=all", "--no-renames"); err != nil {
		return "", err
	}
	if first, _, found := strings.Cut(out.String(), "\x00"); found && len(first) > 3 {
		return disk.Printable(disk.Shorten(first[3:])), nil
	}
	out.Reset()
	if err := repo.Pipe(ctx, nil, &out, "ls-files", "-z", "-s"); err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(out.String(), "\x00") {
		name, found := strings.CutPrefix(line, "160000 ")
		if !found {
			continue
		}
		_, name, _ = strings.Cut(name, "\t")
		if inside, err := disk.Names(filepath.Join(repo.WorkTree, name)); err == nil && len(inside) > 0 {
			return disk.Printable(disk.Shorten(name)), nil
		}
	}
	return "", nil
}

// undo reverts an incomplete addition. If there is no registration, git has written
// nothing, and the files at the path are not ours.
func (s *Repo) undo(ctx context.Context, wt Worktree) error {
	admin, err := s.begun(wt)
	if err != nil {
		return err
	}
	if admin == "" {
		wt.Path = ""
	}
	wt.State = removing
	if err := s.writeRecord(wt); err != nil {
		return err
	}
	if admin != "" {
		if err := wt.removeFiles(); err != nil {
			return err
		}
		if err := s.unregister(admin); err != nil {
			return err
		}
	}
	return s.erase(ctx, wt)
}

// removeFiles removes the directory, or a link in its place. It refuses any other
// directory than the one that was made: that one is not ours.
func (wt Worktree) removeFiles() error {
	if wt.Path == "" {
		return nil
	}
	info, err := os.Lstat(wt.Path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.IsDir() && !wt.owns(info) {
		return nil
	}
	if err != nil {
		return err
	}
	return disk.RemoveAll(wt.Path)
}

// erase removes all of a worktree; missing parts are no error. The registration
// outlives the directory, so that a killed removal can be recognized.
func (s *Repo) erase(ctx context.Context, wt Worktree) error {
	if err := wt.removeFiles(); err != nil {
		return err
	}
	admin, err := s.registered(wt)
	if err != nil {
		return err
	}
	if admin != "" {
		if err := s.unregister(admin); err != nil {
			return err
		}
	}
	if wt.OwnBranch && disk.Exists(s.repo) {
		if err := s.dropBranch(ctx, wt); err != nil {
			return err
		}
	}
	return os.Remove(s.file(wt.Name))
}

// dropBranch deletes the branch and its configuration, unless it is checked out
// elsewhere.
func (s *Repo) dropBranch(ctx context.Context, wt Worktree) error {
	// A git that was killed, ours or an agent's, has left its lock. The agent may also
	// have put a link on the path, which is not followed out of the repository.
	root, err := os.OpenRoot(s.repo)
	if err != nil {
		return err
	}
	err = root.Remove("refs/heads/" + wt.Branch + ".lock")
	if closed := root.Close(); err == nil || errors.Is(err, os.ErrNotExist) {
		err = closed
	}
	if err != nil {
		return err
	}
	out, err := s.git().Output(ctx, "for-each-ref", "--format=%(worktreepath)%(objectname)", "--count=1", "refs/heads/"+wt.Branch)
	if err != nil || !git.IsCommit(out) {
		return err
	}
	return s.git().Run(ctx, "branch", "--quiet", "-D", "--", wt.Branch)
}

// removed is the path to which a registration is renamed before it is deleted. Half of
// one could be mistaken for another's.
const removed = "penstock-removed"

func (r registry) unregister(admin string) error {
	if err := os.Rename(admin, filepath.Join(r.repo, removed)); err != nil {
		return err
	}
	return disk.RemoveAll(filepath.Join(r.repo, removed))
}

// occupied reports whether a process that we may inspect works in dir.
func occupied(dir string) bool {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return false
	}
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && disk.Within(at, dir) {
			return true
		}
	}
	return false
}

// Touched is the last time of any change in a worktree, as far as its files and the
// repository show: removal by age goes by this time.
func (wt Worktree) Touched() time.Time {
	last := wt.Refreshed
	admin, err := registry{wt.Repo}.registered(wt)
	names := []string{wt.Path}
	if err == nil && admin != "" {
		names = append(names, filepath.Join(admin, "index"), filepath.Join(admin, "logs/HEAD"))
	}
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
