package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Source is a repository that jobs begin from.
type Source struct {
	Name   string // for people: without credentials
	Key    string // names its mirror
	Remote git.Remote
	Root   string // of a local work tree, else ""
	Head   string // its HEAD: "refs/heads/x" or a commit; "" to ask the remote
}

// Origin is the work tree that the address names, and its branch; either may be "".
func (s Source) Origin() (dir, branch string) {
	branch, _ = strings.CutPrefix(s.Head, "refs/heads/")
	if branch == s.Head {
		branch = "" // a commit
	}
	return s.Root, branch
}

// A Local is a repository of this host, as seen from some directory.
type Local struct {
	Git  string // the main repository's git directory
	root string // of the work tree that contains the directory, else ""
	head string // the HEAD of that work tree
}

// FindLocal finds the main repository that a path leads to.
func FindLocal(ctx context.Context, path string) (Local, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Local{}, Unreachable(path, err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		if err == nil {
			err = Unsupported(path, "it is a file; if that is a bundle, make a repository of it with git clone and name that")
		}
		return Local{}, err
	}
	root, dir, err := discover(ctx, real)
	if err != nil {
		return Local{}, err
	}
	common, head, err := Main(dir)
	if err != nil {
		return Local{}, Unreachable(path, err)
	}
	if head == reftableHead {
		// In that format only git can read HEAD.
		if head = ""; dir != common {
			return Local{}, Unsupported(path, "it is a worktree of a repository that keeps its refs in the format reftable; name the repository itself, %s", common)
		}
	}
	return Local{Git: common, root: root, head: head}, nil
}

// CheckReadable is called right before git reads a source. Its cost grows with the
// loose objects of the repository, and a commit that is already here needs no reading.
func (s Source) CheckReadable() error {
	if !s.Remote.Local {
		return nil
	}
	return CheckReadable(s.Remote.URL)
}

// LocalPath returns the path that an address means, and whether it is one of this host.
func LocalPath(address string) (string, bool) {
	if rest, ok := strings.CutPrefix(address, "file://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return filepath.Clean(rest[i:]), true
		}
	}
	return filepath.Clean(address), filepath.IsAbs(address)
}

// Digest names the directory for everything that is kept of an address.
func Digest(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:16])
}

// discover walks up from a directory to the repository that contains it. It
// returns the top of the work tree ("" for a bare repository) and the git
// directory.
func discover(ctx context.Context, start string) (root, dir string, err error) {
	for at := start; ; at = filepath.Dir(at) {
		dotGit := filepath.Join(at, ".git")
		info, err := os.Lstat(dotGit)
		switch {
		case err == nil && info.IsDir() && isGitDir(dotGit):
			return at, dotGit, nil
		case err == nil && info.Mode().IsRegular():
			dir, err := follow(ctx, dotGit)
			if err == nil && filepath.Dir(dir) == at && isBare(ctx, dir) {
				at = "" // the files are in its worktrees
			}
			return at, dir, err
		case err == nil && info.Mode().Type() == os.ModeSymlink:
			dir, err := filepath.EvalSymlinks(dotGit)
			if err == nil && !isLinked(dir) && !knows(ctx, dir, at) {
				err = unknown(dotGit, dir)
			}
			return at, dir, err
		case err == nil && !info.IsDir():
			return "", "", Unsupported(start, "%s is neither a directory nor a file; remove it", dotGit)
		case isGitDir(at):
			return "", at, nil
		case at == filepath.Dir(at):
			return "", "", notGit(start)
		}
	}
}

func isGitDir(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return isLinked(dir)
		}
	}
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	return err == nil
}

// isLinked reports whether dir is the part of a repository that belongs to
// one of its worktrees.
func isLinked(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, "commondir"))
	return err == nil
}

// CheckReadable refuses a repository in which git would wait for ever or read
// elsewhere: an earlier agent may have left a FIFO where git expects a file, or a link
// to another repository's refs. A waiting git process would keep the mirror locked,
// even after this process ends.
func CheckReadable(dir string) error {
	for _, name := range []string{"HEAD", "config", "config.worktree", "packed-refs", "shallow", "info", "logs/HEAD", "objects", "refs"} {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			kind := d.Type()
			if kind == os.ModeSymlink {
				to, err := filepath.EvalSymlinks(path)
				if err != nil {
					return nil // a dangling link, so git cannot wait there
				}
				if rel, err := filepath.Rel(dir, to); err != nil || !filepath.IsLocal(rel) {
					return Unsupported(dir, "%s is a link that leads out of the repository; name the repository that has the files", path)
				}
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				kind = info.Mode().Type()
			}
			if kind != 0 && kind != os.ModeDir {
				return Unsupported(dir, "%s is neither a file nor a directory; remove it", path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ReadLine reads one of git's files of one line, which another program may have
// replaced by anything.
func ReadLine(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 8<<10))
	line, _, _ := strings.Cut(string(data), "\n")
	return line, err
}
