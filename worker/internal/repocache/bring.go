package repocache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A ForeignPack is a commit that is in no repository, with what its parent lacks.
type ForeignPack struct {
	Parent, Commit string
	Pack           io.Reader
}

// Bring puts a commit into the mirror of a repository that has its parent.
func (c *Cache) Bring(ctx context.Context, src source.Source, p ForeignPack) (err error) {
	m, err := c.mirror(src)
	if err != nil {
		return err
	}
	l, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Release()) }()
	if err := m.begin(ctx, l, len(p.Parent)); err != nil {
		return err
	}
	if err := m.obtain(ctx, l, target{commit: p.Parent}); err != nil {
		return err
	}
	if err := os.WriteFile(m.path("unfinished"), nil, 0o600); err != nil {
		return err
	}
	if err := m.take(ctx, l, p); err != nil {
		return errors.Join(fmt.Errorf("keep commit %s of %s: %w", p.Commit, src.Name, err), m.repair(m.repo()))
	}
	return os.Remove(m.path("unfinished"))
}

// take stores a pack, and gives its commit a name once all of it is there.
func (m *mirror) take(ctx context.Context, l *disk.Lock, p ForeignPack) error {
	repo := m.repo(l.File)
	if err := repo.Pipe(ctx, p.Pack, nil, "index-pack", "--stdin", "--fix-thin", "--strict"); err != nil {
		return err
	}
	if err := repo.Run(ctx, "rev-list", "--objects", "--quiet", p.Commit, "--not", p.Parent); err != nil {
		return err
	}
	return repo.Run(ctx, "update-ref", "refs/commits/"+p.Commit, p.Commit)
}
