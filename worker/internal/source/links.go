package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// reftableHead is the content of HEAD, for old programs, in a repository that keeps its
// refs in the format reftable.
const reftableHead = "refs/heads/.invalid"

// unknown refuses a .git that points to a repository which does not name the directory
// as its work tree. The repository may be the user's own, made by git init
// --separate-git-dir, or another one that an earlier agent wants to read.
func unknown(dotGit, dir string) error {
	return Unsupported(filepath.Dir(dotGit), "its .git leads to %[1]s, and nothing there says that its files are here; name %[1]s, or run git --git-dir=%[1]s config core.worktree %[2]s if you made it so", dir, filepath.Dir(dotGit))
}

// knows reports whether a git directory names another one as its work tree.
func knows(ctx context.Context, dir, tree string) bool {
	at := setting(ctx, dir, "core.worktree", "path")
	if at == "" {
		return false
	}
	if !filepath.IsAbs(at) {
		at = filepath.Join(dir, at)
	}
	real, err := filepath.EvalSymlinks(at)
	return err == nil && real == tree
}

func isBare(ctx context.Context, dir string) bool {
	return setting(ctx, dir, "core.bare", "bool") == "true"
}

// setting reads one value from a repository's own configuration, and from no file that
// the configuration includes; "" if there is none.
func setting(ctx context.Context, dir, name, kind string) string {
	for _, file := range []string{"config.worktree", "config"} {
		file = filepath.Join(dir, file)
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if value, err := (git.Repo{Dir: dir}).Output(ctx, "config", "--file", file, "--type="+kind, "--get", name); err == nil {
			return value
		}
	}
	return ""
}

// follow reads the .git file of a linked worktree or of a submodule. An earlier agent
// may have written the file, so that another repository of this host is fetched. So the
// repository must name the directory, too.
func follow(ctx context.Context, dotGit string) (string, error) {
	line, err := ReadLine(dotGit)
	if err != nil {
		return "", Unreachable(dotGit, err)
	}
	to, ok := strings.CutPrefix(line, "gitdir: ")
	if !ok {
		return "", notGit(filepath.Dir(dotGit))
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(dotGit), to)
	}
	dir, err := filepath.EvalSymlinks(to)
	if err != nil {
		return "", Unreachable(dotGit, err)
	}
	if !isLinked(dir) {
		// A submodule's git directory is below the .git of a repository that
		// contains the submodule.
		above, inside, found := strings.Cut(dir, "/.git/modules/")
		rel, err := filepath.Rel(above, filepath.Dir(dotGit))
		module := found && inside != "" && err == nil && filepath.IsLocal(rel)
		// An agent that made this directory may have made a git directory beside it,
		// too.
		beside := filepath.Dir(dir) == filepath.Dir(dotGit) && isBare(ctx, dir)
		if !isGitDir(dir) || !module && !beside && !knows(ctx, dir, filepath.Dir(dotGit)) {
			return "", unknown(dotGit, dir)
		}
		return dir, nil
	}
	back, err := ReadLine(filepath.Join(dir, "gitdir"))
	if err != nil {
		return "", unknown(dotGit, dir)
	}
	if !filepath.IsAbs(back) {
		back = filepath.Join(dir, back)
	}
	if back, err = filepath.EvalSymlinks(back); err != nil || back != dotGit {
		return "", Unsupported(dotGit, "it leads to %s, which knows of no worktree here; if this one was moved, run git worktree repair in it", dir)
	}
	return dir, nil
}

// Main finds the repository that a git directory is part of, and reads the directory's
// own HEAD.
func Main(dir string) (repo, head string, err error) {
	name := filepath.Join(dir, "HEAD")
	if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "refs/") {
		head = to // as early versions of git wrote it, and git still reads it
	} else if head, err = ReadLine(name); err != nil {
		return "", "", err
	}
	if target, ok := strings.CutPrefix(head, "ref: "); ok {
		head = target
	}
	if !isLinked(dir) {
		return dir, head, nil
	}
	up, err := ReadLine(filepath.Join(dir, "commondir"))
	if err != nil {
		return "", "", err
	}
	if !filepath.IsAbs(up) {
		up = filepath.Join(dir, up)
	}
	repo, err = filepath.EvalSymlinks(up)
	// An agent can write both ends of a link and point it anywhere, so only the
	// directory where git itself keeps worktrees counts.
	if err == nil && (!isGitDir(repo) || filepath.Dir(dir) != filepath.Join(repo, "worktrees")) {
		err = Unsupported(dir, "it is not a worktree of %s", repo)
	}
	return repo, head, err
}
