package workspace

import (
	"fmt"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// An UnreachableError is a repository that could not be read at all: a wrong
// address, a missing permission, a network that is down.
type UnreachableError struct {
	Repo string // without credentials
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("repository %s cannot be read: %v; check its address, and that the worker may read it", e.Repo, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// A RefError is a branch, tag or commit that the repository does not have.
type RefError struct {
	Repo string
	Ref  string // "" for the default branch
}

func (e *RefError) Error() string {
	if e.Ref == "" {
		return fmt.Sprintf("repository %s has no commit on its default branch; make one, or name a branch", e.Repo)
	}
	return fmt.Sprintf("repository %s has no branch, tag or commit %q; push it, or name another", e.Repo, e.Ref)
}

// A NotGitError is a directory that no git repository contains.
type NotGitError struct{ Path string }

func (e *NotGitError) Error() string {
	return fmt.Sprintf("%s is not a git repository; run git init there, or use isolation none", e.Path)
}

// A LimitError refuses to collect more than [Limits] allow.
type LimitError struct {
	What  string // "files", "bytes", "patch bytes", "depth", "path length", "entries"
	Limit int64
	Path  string // where it was passed, if it was at one place
}

func (e *LimitError) Error() string {
	text := fmt.Sprintf("the result is over the limit of %d %s", e.Limit, e.What)
	if e.Path != "" {
		text += " at " + display(e.Path)
	}
	return text + "; let the agent remove or ignore what is not part of its work"
}

// unreachable wraps what a remote did, without its credentials.
func unreachable(repo string, err error) error {
	return &UnreachableError{Repo: git.Redact(repo), Err: err}
}
