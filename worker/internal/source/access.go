package source

import (
	"context"
	"errors"
	"os"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// Access is how git reads the repositories that jobs begin from.
type Access struct {
	// Env is the environment in which git fetches from a URL, for its credential
	// helpers and ssh keys.
	Env []string
	// Trust is the file that lets git-upload-pack serve a repository of another user.
	// No other program reads it.
	Trust string
}

// WriteTrust writes the file through another one in the directory temp. It never leaves
// an empty file, which another worker's git may be about to read.
func (a Access) WriteTrust(temp string) error {
	want := "[safe]\n\tdirectory = *\n"
	if got, err := os.ReadFile(a.Trust); err == nil && string(got) == want {
		return nil
	}
	f, err := os.CreateTemp(temp, "gitconfig")
	if err != nil {
		return err
	}
	_, err = f.WriteString(want)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), a.Trust)
}

// Locate finds the repository that an address means. A path may point to a directory
// inside a repository or to a linked worktree of it: all of them are one source, the
// main repository.
func (a Access) Locate(ctx context.Context, address string) (Source, error) {
	path, local := LocalPath(address)
	if !local {
		return Source{
			Name: git.Redact(address), Key: Digest(address),
			Remote: git.Remote{URL: address, Env: a.Env},
		}, nil
	}
	at, err := FindLocal(ctx, path)
	if err != nil {
		return Source{}, err
	}
	return Source{
		Name: path, Key: Digest(at.Git), Root: at.root, Head: at.head,
		Remote: git.Remote{URL: at.Git, Local: true, Trust: a.Trust},
	}, nil
}
