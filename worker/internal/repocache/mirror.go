package repocache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A mirror is a copy of one remote on this host: a bare repository and the bases that
// were made from it. Changing it needs its lock.
type mirror struct {
	dir    string
	source source.Source
	cache  *Cache
	used   bool // it was there before

	progress Progress
}

// A target is the commit that a job begins from, and the branch it was found
// on, if it was.
type target struct{ commit, branch string }

func (c *Cache) mirror(src source.Source) (*mirror, error) {
	m := &mirror{dir: filepath.Join(c.cfg.Dir, "mirrors", src.Key), source: src, cache: c}
	return m, os.MkdirAll(m.path("bases"), 0o700)
}

func (m *mirror) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mirror) repo(hold ...*os.File) git.Repo {
	return git.Repo{Dir: m.path("mirror.git"), Hold: hold}
}

// lock waits until no other holder, in this process or another one, changes m. The
// lock's time tells Sweep when the mirror was last used.
func (m *mirror) lock(ctx context.Context) (*disk.Lock, error) {
	l, err := disk.WaitLock(ctx, m.path("lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if err := os.Chtimes(m.path("lock"), now, now); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return l, nil
}

// resolve finds the commit that a job asks for. Only a full commit id is
// taken without asking the remote: a branch may have moved.
func (m *mirror) resolve(ctx context.Context, ref, commit string) (target, error) {
	if commit == "" && git.IsCommit(ref) {
		commit = ref
	}
	if commit != "" {
		return target{commit: commit, branch: source.PlainBranch(ref)}, nil
	}
	if ref == "" && git.IsCommit(m.source.Head) {
		return target{commit: m.source.Head}, nil
	}
	want := ref
	if want == "" {
		want = m.source.Head
	}
	refs, head, err := m.list(ctx, want)
	if err != nil {
		return target{}, m.unreachable(ctx, err)
	}
	if want == "" {
		want = head
	}
	found := map[string]string{}
	for _, r := range refs {
		found[r.Name] = r.Commit
	}
	if c := found["HEAD"]; ref == "" && m.source.Head == "" && c != "" {
		return target{commit: c, branch: source.PlainBranch(head)}, nil
	}
	// A branch comes before a tag of the same name, and of a tag that is an
	// object the commit that it points to.
	for _, name := range fullNames(want) {
		if c := found[name]; c != "" {
			branch, _ := strings.CutPrefix(name, "refs/heads/")
			return target{commit: c, branch: source.PlainBranch(branch)}, nil
		}
	}
	if abbreviated().MatchString(ref) {
		idLen := 40
		if len(refs) > 0 {
			idLen = len(refs[0].Commit)
		}
		return m.expand(ctx, ref, idLen)
	}
	return target{}, &source.RefError{Repo: m.source.Name, Ref: ref}
}

var abbreviated = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{7,63}$`) })

func fullNames(ref string) []string {
	if strings.HasPrefix(ref, "refs/") {
		return []string{ref + "^{}", ref}
	}
	return []string{"refs/heads/" + ref, "refs/tags/" + ref + "^{}", "refs/tags/" + ref}
}

// expand finds the commit that a short id means, for which all branches must
// be here.
func (m *mirror) expand(ctx context.Context, short string, idLen int) (_ target, err error) {
	l, err := m.lock(ctx)
	if err != nil {
		return target{}, err
	}
	defer func() { err = errors.Join(err, l.Release()) }()
	if err := m.begin(ctx, l, idLen); err != nil {
		return target{}, err
	}
	ask := func() (string, error) {
		return m.repo().Output(ctx, "rev-parse", "--quiet", "--verify", short+"^{commit}")
	}
	if id, err := ask(); err == nil {
		return target{commit: id}, nil
	}
	if err := m.fetch(ctx, l, 0, everything...); err != nil {
		return target{}, m.unreachable(ctx, err)
	}
	id, err := ask()
	if err != nil {
		return target{}, &source.RefError{Repo: m.source.Name, Ref: short}
	}
	return target{commit: id}, nil
}

var everything = []string{"+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"}

// begin makes sure that there is a usable mirror. The caller holds the lock. A mark
// says whether the last fetch was completed.
func (m *mirror) begin(ctx context.Context, l *disk.Lock, idLen int) error {
	repo := m.repo(l.File)
	if _, err := os.Stat(m.path("unfinished")); err == nil {
		if err := m.repair(repo); err != nil {
			return err
		}
	}
	if _, err := os.Stat(repo.Dir); err == nil {
		if m.used = m.holds(idLen); m.used {
			return nil
		}
		// The repository was made anew in another format, or an id of the
		// wrong length was asked for. A mirror is of one format.
		if err := m.discard(ctx); err != nil {
			return err
		}
	}
	m.used = false
	fresh := m.path("new-mirror")
	if err := m.cache.cfg.Trash.Remove(ctx, fresh); err != nil {
		return err
	}
	if err := git.Init(fresh, idLen, "bare = true"); err != nil {
		return fmt.Errorf("make mirror: %w", err)
	}
	return os.Rename(fresh, repo.Dir)
}

// holds reports whether the mirror can have objects with ids of that length. It accepts
// one that cannot be read, because its reader will notice the damage.
func (m *mirror) holds(idLen int) bool {
	config, err := os.ReadFile(m.path("mirror.git/config"))
	return err != nil || strings.Contains(string(config), "objectFormat = sha256") == (idLen == 64)
}

// repair makes a mirror usable in which git was killed. Git's own locks have no owner
// any more, because all of its processes held ours. Objects need no check here: damage
// is noticed when a base is made.
func (m *mirror) repair(repo git.Repo) error {
	err := filepath.WalkDir(repo.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") {
			return os.Remove(path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("repair mirror: %w", err)
	}
	return os.Remove(m.path("unfinished"))
}

// discard throws the mirror away; it will be fetched anew.
func (m *mirror) discard(ctx context.Context) error {
	return m.cache.cfg.Trash.Remove(ctx, m.path("mirror.git"))
}

// fetch brings refspecs into the mirror, with so many commits of history, or
// all of it if depth is 0. The caller holds the lock.
func (m *mirror) fetch(ctx context.Context, l *disk.Lock, depth int, refspecs ...string) error {
	if err := m.source.CheckReadable(); err != nil {
		return err
	}
	if err := os.WriteFile(m.path("unfinished"), nil, 0o600); err != nil {
		return err
	}
	began := time.Now()
	repo := m.repo(l.File)
	repo.Progress = m.progress.Of("fetch")
	if err := repo.Fetch(ctx, m.source.Remote, depth, refspecs...); err != nil {
		// git leaves half a pack behind when the disk is full, and each try
		// would add another.
		return errors.Join(err, m.repair(m.repo()))
	}
	if f := m.cache.cfg.Fetched; f != nil {
		f(m.source.Name, time.Since(began))
	}
	if err := m.tidy(ctx, l); err != nil {
		return errors.Join(err, m.repair(m.repo()))
	}
	return os.Remove(m.path("unfinished"))
}

// maxPacks is how many packs a mirror may have. Each fetch adds one, and git
// looks into all of them for each object.
const maxPacks = 50

// tidy joins packs and refs once there are many. Only small packs are written
// anew, and nothing is thrown away.
func (m *mirror) tidy(ctx context.Context, l *disk.Lock) error {
	packs, err := filepath.Glob(m.path("mirror.git/objects/pack/*.pack"))
	if err != nil || len(packs) <= maxPacks {
		return err
	}
	repo := m.repo(l.File)
	if err := repo.Run(ctx, "pack-refs", "--all"); err != nil {
		return err
	}
	return repo.Run(ctx, "repack", "--geometric=2", "-d", "-q")
}

// obtain makes sure that the mirror has a commit. The caller holds the lock.
func (m *mirror) obtain(ctx context.Context, l *disk.Lock, t target) error {
	if m.has(ctx, t.commit) {
		return nil
	}
	itself := "+" + t.commit + ":refs/commits/" + t.commit
	err := m.fetch(ctx, l, 0, itself)
	if errors.Is(err, git.ErrIncomplete) {
		// A partial clone has the files of the commits that were checked out there, and
		// often not those of its history.
		err = m.fetch(ctx, l, 1, itself)
	}
	if err == nil && m.has(ctx, t.commit) {
		return nil
	}
	if err == nil || errors.Is(err, git.ErrNoObject) {
		// Some servers serve commits that a branch or tag points to, and none by its id
		// alone.
		err = m.fetch(ctx, l, 0, everything...)
		if errors.Is(err, git.ErrNoObject) || err == nil && !m.has(ctx, t.commit) {
			return &source.RefError{Repo: m.source.Name, Ref: t.commit}
		}
	}
	if err == nil {
		return nil
	}
	if refused := m.refused(err); refused != nil {
		return refused
	}
	// A fetch has two ends. If the remote answers, the mirror is to blame.
	if _, _, listing := m.ask(ctx); listing == nil && m.used && !disk.IsFull(err) {
		return &damagedError{err}
	}
	return m.unreachable(ctx, err)
}

func (m *mirror) has(ctx context.Context, commit string) bool {
	kind, err := m.repo().Output(ctx, "cat-file", "-t", commit)
	return err == nil && kind == "commit"
}
