package source

import (
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// An UnreachableError is a repository that could not be read at all: the address is
// wrong, a permission is missing, or the network is down.
type UnreachableError struct {
	Repo string // without credentials
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("repository %s cannot be read: %v; check its address, and that the worker may read it", e.Repo, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// A RefusedError is a repository that no job can begin from as it is: another attempt
// would end no better. Err names the obstacle, and the way out.
type RefusedError struct {
	Repo   string // without credentials
	Reason jobs.Reason
	Err    error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("repository %s cannot be used: %v", e.Repo, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

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

// Unreachable wraps the error of a remote, without its credentials. It keeps an error
// that already describes the repository.
func Unreachable(repo string, err error) error {
	if already, ok := errors.AsType[*RefusedError](err); ok {
		return already
	}
	return &UnreachableError{Repo: git.Redact(repo), Err: err}
}

// Unsupported is the error of a repository that no attempt can begin from; the format
// says why, and the way out.
func Unsupported(repo, format string, args ...any) error {
	return &RefusedError{Repo: git.Redact(repo), Reason: jobs.RepoUnsupported, Err: fmt.Errorf(format, args...)}
}

func notGit(path string) error {
	return &RefusedError{Repo: path, Reason: jobs.NotARepository, Err: errors.New("it is not a git repository; run git init there, or use isolation none")}
}

// privateDocs is the page that tells users how the worker's git gets credentials.
const privateDocs = "https://github.com/penstock-run/penstock/blob/main/docs/how-to/private-repositories.md"

// NoCredentials is the error of a repository that asks for credentials which the
// worker does not have.
func NoCredentials(repo string, err error) error {
	return &RefusedError{Repo: git.Redact(repo), Reason: jobs.NoCredentials, Err: fmt.Errorf("the worker's git has no credentials that are accepted there: %w; see %s", err, privateDocs)}
}
