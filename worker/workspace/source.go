package workspace

import (
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

// A source is a repository that jobs begin from.
type source struct {
	name   string // for people: no credentials
	key    string // names its mirror
	remote git.Remote
	root   string // of a local work tree, else ""
	head   string // what its HEAD says: "refs/heads/x" or a commit; "" to ask the remote
}

// locate finds the repository that an address means. A path may lead to a
// directory inside a repository or to a linked worktree of it: all of them
// are one source, the main repository.
func (s *Spaces) locate(address string) (source, error) {
	path, local := localPath(address)
	if !local {
		return source{
			name: git.Redact(address), key: key(address),
			remote: git.Remote{URL: address, Env: s.cfg.FetchEnv},
		}, nil
	}
	at, err := locateLocal(path)
	if err != nil {
		return source{}, err
	}
	return source{
		name: path, key: key(at.git), root: at.root, head: at.head,
		remote: git.Remote{URL: at.git, Local: true, Trust: s.trust()},
	}, nil
}

// origin is the work tree that the address led to, and the branch it is on;
// either may be "".
func (s source) origin() (dir, branch string) {
	branch, _ = strings.CutPrefix(s.head, "refs/heads/")
	if branch == s.head {
		branch = "" // a commit
	}
	return s.root, branch
}

// A local is a repository of this host, as it was found from some directory.
type local struct {
	git  string // the main repository's git directory
	root string // of the work tree that contains the directory, else ""
	head string // what the HEAD of that work tree says
}

// locateLocal finds the main repository that a path leads to.
func locateLocal(path string) (local, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return local{}, unreachable(path, err)
	}
	root, dir, err := discover(real)
	if err != nil {
		return local{}, err
	}
	common, head, err := common(dir)
	if err != nil {
		return local{}, unreachable(path, err)
	}
	return local{git: common, root: root, head: head}, nil
}

// passable is asked right before git reads a source. That costs what the
// repository has loose objects, and a commit that is here needs no reading.
func (s source) passable() error {
	if !s.remote.Local {
		return nil
	}
	return passable(s.remote.URL)
}

func localPath(address string) (string, bool) {
	if rest, ok := strings.CutPrefix(address, "file://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return filepath.Clean(rest[i:]), true
		}
	}
	return filepath.Clean(address), filepath.IsAbs(address)
}

func key(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:16])
}

// discover walks up from a directory to the repository that contains it. It
// returns the top of the work tree ("" for a bare repository) and the git
// directory.
func discover(start string) (root, dir string, err error) {
	for at := start; ; at = filepath.Dir(at) {
		dotGit := filepath.Join(at, ".git")
		info, err := os.Lstat(dotGit)
		switch {
		case err == nil && info.IsDir() && isGitDir(dotGit):
			return at, dotGit, nil
		case err == nil && info.Mode().IsRegular():
			dir, err := follow(dotGit)
			return at, dir, err
		case err == nil && !info.IsDir():
			return "", "", unreachable(start, fmt.Errorf("%s is neither a directory nor a file; name the repository that it leads to", dotGit))
		case isGitDir(at):
			return "", at, nil
		case at == filepath.Dir(at):
			return "", "", &NotGitError{Path: start}
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

// follow reads a .git file: that of a linked worktree or of a submodule. The
// file may have been written by an earlier agent, to have another repository
// of this host fetched. So the repository must know of the directory, too.
func follow(dotGit string) (string, error) {
	refuse := fmt.Errorf("%s points to a repository that does not know it", dotGit)
	line, err := readLine(dotGit)
	if err != nil {
		return "", unreachable(dotGit, err)
	}
	to, ok := strings.CutPrefix(line, "gitdir: ")
	if !ok {
		return "", &NotGitError{Path: filepath.Dir(dotGit)}
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(dotGit), to)
	}
	dir, err := filepath.EvalSymlinks(to)
	if err != nil {
		return "", unreachable(dotGit, err)
	}
	if !isLinked(dir) {
		// A submodule's git directory is below the .git of a repository that
		// contains the submodule.
		above, inside, found := strings.Cut(dir, "/.git/modules/")
		if rel, err := filepath.Rel(above, filepath.Dir(dotGit)); !found || inside == "" || err != nil || !filepath.IsLocal(rel) || !isGitDir(dir) {
			return "", unreachable(dotGit, refuse)
		}
		return dir, nil
	}
	back, err := readLine(filepath.Join(dir, "gitdir"))
	if err != nil {
		return "", unreachable(dotGit, errors.Join(refuse, err))
	}
	if !filepath.IsAbs(back) {
		back = filepath.Join(dir, back)
	}
	if back, err = filepath.EvalSymlinks(back); err != nil || back != dotGit {
		return "", unreachable(dotGit, refuse)
	}
	return dir, nil
}

// common finds the repository that a git directory is part of, and what its
// own HEAD says.
func common(dir string) (repo, head string, err error) {
	head, err = readLine(filepath.Join(dir, "HEAD"))
	if err != nil {
		return "", "", err
	}
	if target, ok := strings.CutPrefix(head, "ref: "); ok {
		head = target
	}
	if !isLinked(dir) {
		return dir, head, nil
	}
	up, err := readLine(filepath.Join(dir, "commondir"))
	if err != nil {
		return "", "", err
	}
	if !filepath.IsAbs(up) {
		up = filepath.Join(dir, up)
	}
	repo, err = filepath.EvalSymlinks(up)
	// Whoever writes both ends of a link can point it anywhere, so only the
	// place where git itself keeps worktrees counts.
	if err == nil && (!isGitDir(repo) || filepath.Dir(dir) != filepath.Join(repo, "worktrees")) {
		err = fmt.Errorf("%s is not a worktree of %s", dir, repo)
	}
	return repo, head, err
}

// passable refuses a repository in which reading would wait for ever or lead
// elsewhere: an earlier agent may have left a FIFO where git expects a file,
// or a link to another repository's refs. A git process that waits would keep
// the mirror locked, even after our end.
func passable(dir string) error {
	for _, name := range []string{"HEAD", "config", "config.worktree", "packed-refs", "shallow", "info", "logs/HEAD", "objects", "refs"} {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			kind := d.Type()
			if kind == os.ModeSymlink {
				to, err := filepath.EvalSymlinks(path)
				if err != nil {
					return nil // leads nowhere, so nothing waits there
				}
				if rel, err := filepath.Rel(dir, to); err != nil || !filepath.IsLocal(rel) {
					return fmt.Errorf("%s is a link that leads out of the repository; name the repository that has the files", path)
				}
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				kind = info.Mode().Type()
			}
			if kind != 0 && kind != os.ModeDir {
				return fmt.Errorf("%s is neither a file nor a directory; remove it", path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readLine reads one of git's files of one line, which another program may
// have replaced by anything.
func readLine(path string) (string, error) {
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
