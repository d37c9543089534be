package repocache

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// A Config says where a [Cache] is, and bounds it.
type Config struct {
	Dir    string // of the workspaces; the cache has "mirrors" in it
	Access source.Access
	Jail   poolmark.Jail // where templates are finished; without one there are none
	Trash  *disk.Trash
	// History is the size of a repository's objects up to which a base gets all
	// of its history. Above, it gets 50 commits.
	History int64
	// MonitoredFiles is how many files a base has at least for its template to have a
	// monitor, see package gitmonitor.
	MonitoredFiles int
	// Fetched is called after a fetch from a repository, Leftover with damaged parts
	// that are made anew. They may be nil.
	Fetched  func(repo string, took time.Duration)
	Leftover func(what string, err error)
}

// A Cache is what this host keeps of repositories. It is safe for use by many
// goroutines, and by many processes on one directory.
type Cache struct {
	cfg      Config
	answers  answers
	listings listings
}

// New returns the cache in cfg's directory.
func New(cfg Config) *Cache { return &Cache{cfg: cfg} }

// Base returns the base of the commit that a job begins from, and makes it if it must.
// tell, unless nil, is called with the progress.
func (c *Cache) Base(ctx context.Context, src source.Source, at Revision, tell Progress) (*Base, error) {
	m, err := c.mirror(src)
	if err != nil {
		return nil, err
	}
	m.progress = tell
	t, err := m.resolve(ctx, at.Ref, at.Commit)
	if err != nil {
		return nil, err
	}
	return m.base(ctx, t)
}

// A Revision is the commit that a job asks for: a full commit id, or else a branch, a
// tag or a short id. Without either it is the repository's HEAD.
type Revision struct{ Ref, Commit string }

// Resolve finds the commit that a job asks for.
func (c *Cache) Resolve(ctx context.Context, src source.Source, at Revision) (string, error) {
	m, err := c.mirror(src)
	if err != nil {
		return "", err
	}
	t, err := m.resolve(ctx, at.Ref, at.Commit)
	return t.commit, err
}

// Listing returns the files of a base. They are read once for all that use the
// base in this process.
func (c *Cache) Listing(b *Base) (git.Listing, error) { return c.listings.get(b.Index()) }
