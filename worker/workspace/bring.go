package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Bring puts a commit that is in no repository into what this host has fetched
// of one, so that jobs of that repository can begin from it. Pack has what its
// parent lacks. The repository is only read. The commit is there for as long
// as the host keeps what it fetched of the repository.
func (s *Spaces) Bring(ctx context.Context, repo, parent, commit string, pack io.Reader) (err error) {
	src, err := s.access.Locate(ctx, repo)
	if err != nil {
		return err
	}
	m, err := s.mirror(src)
	if err != nil {
		return err
	}
	l, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Release()) }()
	if err := m.begin(ctx, l, len(parent)); err != nil {
		return err
	}
	if err := m.obtain(ctx, l, target{commit: parent}); err != nil {
		return err
	}
	if err := os.WriteFile(m.path("unfinished"), nil, 0o600); err != nil {
		return err
	}
	if err := m.take(ctx, l, parent, commit, pack); err != nil {
		return errors.Join(fmt.Errorf("keep commit %s of %s: %w", commit, src.Name, err), m.repair(m.repo()))
	}
	return os.Remove(m.path("unfinished"))
}

// take stores a pack, and gives its commit a name once all of it is there.
func (m *mirror) take(ctx context.Context, l *disk.Lock, parent, commit string, pack io.Reader) error {
	repo := m.repo(l.File)
	if err := repo.Pipe(ctx, pack, nil, "index-pack", "--stdin", "--fix-thin", "--strict"); err != nil {
		return err
	}
	if err := repo.Run(ctx, "rev-list", "--objects", "--quiet", commit, "--not", parent); err != nil {
		return err
	}
	return repo.Run(ctx, "update-ref", "refs/commits/"+commit, commit)
}
