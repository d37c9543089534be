package worktree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// ownDir holds the worktrees of a repository: below its own work tree, in a directory
// that git ignores.
const ownDir = ".penstock"

// choosePath returns the canonical path for a new worktree: the requested one, or one
// below the main repository's work tree, wherever in it or in another worktree of it
// the user is.
func (s *Repo) choosePath(name, asked string) (string, error) {
	path := asked
	if asked == "" {
		if filepath.Base(s.repo) != ".git" {
			return "", fmt.Errorf("%s has no work tree to put worktrees below; name a directory with --dir", disk.Printable(s.repo))
		}
		root, err := makeRoot(filepath.Dir(s.repo))
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, flat(name))
	}
	path, err := canonical(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return "", errors.Join(err, fmt.Errorf("%s exists; remove it, or name another with --dir", disk.Printable(path)))
	}
	return path, s.outside(path)
}

// outside refuses a directory in the git directory, or in another worktree,
// whose removal would take this one with it.
func (r registry) outside(path string) error {
	if disk.Within(path, r.repo) {
		return fmt.Errorf("%s is inside the repository's git directory", disk.Printable(path))
	}
	admins, err := r.admins()
	for _, admin := range admins {
		if other := strings.TrimSuffix(gitdirOf(admin), "/.git"); other != "" && disk.Within(path, other) {
			return fmt.Errorf("%s is inside another worktree, %s", disk.Printable(path), disk.Printable(other))
		}
	}
	return err
}

// canonical resolves the directory that contains path. The last element need not exist,
// and is not followed if it does.
func canonical(path string) (string, error) {
	if strings.ContainsFunc(filepath.Base(path), unicode.IsControl) {
		return "", fmt.Errorf("directory %s has a control character in its name", disk.Printable(path))
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	return filepath.Join(parent, filepath.Base(abs)), err
}

// makeRoot makes <top>/.penstock/worktrees. The files below top may come from a merged
// result, with a link where we want a directory. Neither directory may be a link or
// belong to another user.
func makeRoot(top string) (string, error) {
	at := top
	for _, name := range []string{ownDir, "worktrees"} {
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return "", fmt.Errorf("look at %s: %w", at, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
			return "", fmt.Errorf("%s is not a directory of yours; remove it, or name a directory with --dir", disk.Printable(at))
		}
	}
	// Without this file git would list the directory as untracked. A link in the file's
	// place is not followed.
	ignore := filepath.Join(top, ownDir, ".gitignore")
	f, err := os.OpenFile(ignore, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return at, nil
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("*\n")
	return at, errors.Join(err, f.Close())
}

// A registry is what a repository keeps of its worktrees, in its git directory.
type registry struct {
	repo string // the main repository's git directory
}

// admins lists the registrations of the repository's worktrees.
func (r registry) admins() ([]string, error) {
	dir := filepath.Join(r.repo, "worktrees")
	names, err := disk.Names(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
}

// registered returns the registration of a worktree of ours; "" if there is none.
func (r registry) registered(wt Worktree) (string, error) {
	return r.admin(func(admin string) bool { return gitdirOf(admin) == wt.Path+"/.git" })
}

// begun returns the registration of a worktree that git was told to make and that no
// job has had yet. It may not have a path yet.
func (r registry) begun(wt Worktree) (string, error) {
	return r.admin(func(admin string) bool { return lockedFor(admin) == wt.reason() })
}

func (r registry) admin(is func(admin string) bool) (string, error) {
	admins, err := r.admins()
	for _, admin := range admins {
		if is(admin) {
			return admin, nil
		}
	}
	return "", err
}

// reason is the text of a registration's lock until the worktree is complete. It
// distinguishes our registration from another one at the same path.
func (wt Worktree) reason() string { return "penstock is making " + wt.Name + " for job " + wt.Job }

// lockedFor returns the reason of git's lock; "" if there is none.
func lockedFor(admin string) string {
	line, err := source.ReadLine(filepath.Join(admin, "locked"))
	if err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && line == "" {
		return "no reason given"
	}
	return line
}

// gitdirOf reads the path of a worktree; "" if that cannot be read. A path may contain
// newlines.
func gitdirOf(admin string) string {
	name := filepath.Join(admin, "gitdir")
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 2*unix.PathMax {
		return ""
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	path := strings.TrimSuffix(string(data), "\n")
	if !filepath.IsAbs(path) {
		path = filepath.Join(admin, path)
	}
	return path
}
