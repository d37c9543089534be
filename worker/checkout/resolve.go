package checkout

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// Resolve returns the commit that a branch or tag of a repository leads to
// now, or its HEAD if ref is "": of a path the HEAD of the work tree there. The
// repository is read with the user's environment, and so with their keys.
func Resolve(ctx context.Context, repo, ref string, env []string) (commit string, err error) {
	if git.IsCommit(ref) {
		return ref, nil // whether the repository has it shows when it is fetched
	}
	if path, local := Local(repo); local {
		commit, err = git.UserCommit(ctx, path, names(ref), env)
	} else {
		commit, err = remote(ctx, repo, ref, env)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", git.Redact(repo), err)
	}
	if commit == "" {
		what := ref
		if what == "" {
			what = "HEAD"
		}
		return "", fmt.Errorf("%s has no branch, tag or commit %q", git.Redact(repo), what)
	}
	return commit, nil
}

// Local returns the path of a repository of this host; false for others.
func Local(repo string) (string, bool) {
	if rest, ok := strings.CutPrefix(repo, "file://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return filepath.Clean(rest[i:]), true
		}
	}
	return repo, filepath.IsAbs(repo)
}

// names are what a worker takes a name for, in its order: a branch comes before
// a tag of the same name.
func names(ref string) []string {
	switch {
	case ref == "":
		return []string{"HEAD"}
	case strings.ContainsAny(ref, "~^:?*[\\ ") || strings.Contains(ref, "..") || strings.Contains(ref, "@{"):
		return nil // no name, but a question that only some repositories answer
	case strings.HasPrefix(ref, "refs/"):
		return []string{ref}
	}
	list := []string{"refs/heads/" + ref, "refs/tags/" + ref}
	if len(ref) >= 7 && strings.Trim(ref, "0123456789abcdef") == "" {
		list = append(list, ref) // of a commit's id the beginning
	}
	return list
}

func remote(ctx context.Context, repo, ref string, env []string) (string, error) {
	ask := names(ref)
	for _, name := range ask {
		ask = append(ask, name+"^{}") // what a tag that is an object points to
	}
	refs, _, err := git.Remote{URL: repo, Env: env}.List(ctx, os.TempDir(), ask...)
	if err != nil {
		return "", err
	}
	found := map[string]string{}
	for _, r := range refs {
		found[r.Name] = r.Commit
	}
	for _, name := range names(ref) {
		for _, full := range []string{name + "^{}", name} {
			if found[full] != "" {
				return found[full], nil
			}
		}
	}
	return "", nil
}
