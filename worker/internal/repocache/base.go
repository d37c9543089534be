package repocache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/packs"
)

// A Base is common to all workspaces of one commit: a git directory to copy and an
// index. It never changes after it has its name, and it stays while it is held.
type Base struct {
	mirror *mirror // nil if it was not made here
	Dir    string
	Commit string
	lock   *disk.Lock // shared
	Trees  []string   // of the template, once there is one: its directories, the uppermost first
}

func (b *Base) Git() string    { return filepath.Join(b.Dir, "git") }
func (b *Base) Index() string  { return filepath.Join(b.Dir, "index") }
func (b *Base) Release() error { return b.lock.Release() }

// BaseAt is the base in a directory, which is not held yet.
func BaseAt(dir string) *Base { return &Base{Dir: dir, Commit: filepath.Base(dir)} }

// Hold keeps a base from being removed, as its maker did.
func (b *Base) Hold(ctx context.Context) (err error) {
	b.lock, err = disk.WaitLock(ctx, b.Dir+".lock", syscall.LOCK_SH)
	return err
}

// OpenTemplate finds the directories of a template that is there.
func (b *Base) OpenTemplate() (err error) {
	b.Trees, err = b.stack()
	return err
}

// base returns the base of a commit, which it builds if it must.
func (m *mirror) base(ctx context.Context, t target) (_ *Base, err error) {
	if b, err := m.open(ctx, t.commit); b != nil || err != nil {
		return b, err
	}
	l, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Release()) }()
	// Another process may have built it while this one waited for the lock.
	if b, err := m.open(ctx, t.commit); b != nil || err != nil {
		return b, err
	}
	err = m.build(ctx, l, t)
	if failed, ok := errors.AsType[*damagedError](err); ok && ctx.Err() == nil {
		if f := m.cache.cfg.Leftover; f != nil {
			f("damaged mirror of "+m.source.Name, failed)
		}
		if err := m.discard(ctx); err != nil {
			return nil, err
		}
		err = m.build(ctx, l, t)
	}
	if err != nil {
		return nil, err
	}
	return m.open(ctx, t.commit)
}

// open returns a base that is there, locked against removal, or nil.
func (m *mirror) open(ctx context.Context, commit string) (*Base, error) {
	dir := m.path("bases/" + commit)
	if _, err := os.Stat(dir); err != nil {
		return nil, nil
	}
	l, err := disk.WaitLock(ctx, dir+".lock", syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, l.Release() // evicted meanwhile; only Sweep removes lock files
	}
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil { // for eviction
		return nil, errors.Join(err, l.Release())
	}
	return &Base{mirror: m, Commit: commit, Dir: dir, lock: l}, nil
}

// A damagedError is a failure of steps that need nothing but the mirror.
type damagedError struct{ err error }

func (e *damagedError) Error() string { return "mirror is damaged: " + e.err.Error() }
func (e *damagedError) Unwrap() error { return e.err }

func (m *mirror) build(ctx context.Context, l *disk.Lock, t target) error {
	if err := m.begin(ctx, l, len(t.commit)); err != nil {
		return err
	}
	if err := m.obtain(ctx, l, t); err != nil {
		return err
	}
	fresh := m.path("new-base")
	if err := m.cache.cfg.Trash.Remove(ctx, fresh); err != nil {
		return err
	}
	if err := m.fill(ctx, l, fresh, t); err != nil {
		err = fmt.Errorf("prepare commit %s of %s: %w", t.commit, m.source.Name, err)
		if _, failed := errors.AsType[*git.Error](err); failed && !disk.IsFull(err) {
			err = &damagedError{err}
		}
		return errors.Join(err, m.cache.cfg.Trash.Remove(context.WithoutCancel(ctx), fresh))
	}
	return publish(fresh, m.path("bases/"+t.commit))
}

// publish gives an entry its final name, when all of it is on the disk: a power cut leaves
// it whole, or without its name.
func publish(fresh, name string) error {
	if err := disk.Sync(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, name)
}

func (m *mirror) fill(ctx context.Context, l *disk.Lock, dir string, t target) error {
	repo := git.Repo{Dir: filepath.Join(dir, "git"), Index: filepath.Join(dir, "index"), Hold: []*os.File{l.File}}
	if err := git.Init(repo.Dir, len(t.commit), "bare = false\n\tlogallrefupdates = true", identity); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(repo.Dir, "HEAD"), []byte("ref: refs/heads/"+git.AgentBranch+"\n"), 0o644); err != nil {
		return err
	}
	depth, err := m.depth()
	if err != nil {
		return err
	}
	if depth == 0 {
		if err := m.share(ctx, repo.Dir, t.commit); err != nil {
			return err
		}
	}
	own := git.Remote{URL: m.path("mirror.git"), Local: true, Trust: m.cache.cfg.Access.Trust}
	repo.Progress = m.progress.Of("history")
	if err := repo.Fetch(ctx, own, depth, t.commit); err != nil {
		return err
	}
	refs := []string{"refs/heads/" + git.AgentBranch}
	if t.branch != "" {
		refs = append(refs, "refs/remotes/origin/"+t.branch)
	}
	for _, name := range refs {
		if err := writeRef(repo.Dir, name, t.commit); err != nil {
			return err
		}
	}
	return repo.Run(ctx, "read-tree", t.commit)
}

// share lets a new base begin with history that is here already. Other objects of the mirror
// are not for its agent. A fetch adds what is missing.
func (m *mirror) share(ctx context.Context, into, commit string) error {
	var holders []packs.Holder
	if m.used { // else this can be a second try, and what is damaged can be a base
		bases, err := newest(m.path("bases"))
		if err != nil {
			return err
		}
		for _, b := range bases[:min(len(bases), candidates)] {
			holders = append(holders, packs.Holder{Dir: b.Git(), Commit: b.Commit})
		}
	}
	have, err := packs.Share(ctx, into, m.repo(), holders, commit)
	if err != nil || have == "" {
		return err
	}
	return writeRef(into, "refs/heads/"+git.AgentBranch, have)
}

// writeRef gives a commit a name in a git directory that no other process uses.
func writeRef(dir, name, commit string) error {
	ref := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(ref), 0o755); err != nil {
		return err
	}
	return os.WriteFile(ref, []byte(commit+"\n"), 0o644)
}

// depth is how many commits of history a workspace gets: all, unless that
// would make each copy large.
func (m *mirror) depth() (int, error) {
	packs, err := os.ReadDir(m.path("mirror.git/objects/pack"))
	if err != nil {
		return 0, err
	}
	var size int64
	for _, p := range packs {
		if info, err := p.Info(); err == nil {
			size += info.Size()
		}
	}
	if size > m.cache.cfg.History {
		return shallowDepth, nil
	}
	return 0, nil
}

const (
	shallowDepth = 50
	identity     = `[user]
	name = Penstock agent
	email = agent@penstock.invalid
[gc]
	auto = 0
[maintenance]
	auto = false
[commit]
	gpgSign = false
[tag]
	gpgSign = false
`
)
