package agentstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A Package is where the program of an agent comes from.
type Package struct {
	Name    string // in the registry: "@openai/codex"
	Program string // which of the programs that it has
	// Native are patterns of the program itself in packages for one system, below
	// node_modules. The first one that matches one file counts; if none does, it is the
	// program that the package names.
	Native []string
}

// Installed is a version of a package.
type Installed struct {
	Package string    `json:"package"`
	Version string    `json:"version"`
	Program string    `json:"program"` // below the tree
	Digest  string    `json:"digest"`  // SHA-256 of the list of its files
	Bytes   int64     `json:"bytes"`
	Files   int       `json:"files"`
	At      time.Time `json:"installed_at"`

	dir string
}

// Tree is the directory that jails see.
func (i Installed) Tree() string { return filepath.Join(i.dir, treeName) }

// Path is the program.
func (i Installed) Path() string { return filepath.Join(i.Tree(), i.Program) }

// Bin is a directory with nothing in it but the program by its name, for PATH.
func (i Installed) Bin() string { return filepath.Join(i.Tree(), binName) }

// What is in the directory of a version, and in its tree.
const (
	treeName     = "tree"
	listName     = "files"
	manifestName = "manifest.json"
	lockName     = "lock" // shared by those who use the version

	binName     = "bin"
	modulesName = "node_modules"
)

// A Store is the versions below a directory.
type Store struct {
	root string

	mu       sync.Mutex
	verified map[string]string // the metadata of trees whose files were read, by directory
	broken   map[string]string // the directories whose trees have changed, as they were then
}

// New returns the store below a directory, which need not exist. It does no I/O.
func New(root string) *Store {
	return &Store{root: root, verified: map[string]string{}, broken: map[string]string{}}
}

// A MissingError says that a version is not installed.
type MissingError struct {
	Package, Version string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("version %s of %s is not installed", e.Version, e.Package)
}

// A ChangedError says that the files of a version are not those that were installed.
type ChangedError struct {
	Package, Version string
	Path             string // the first file that differs; empty: the list of the files does
	What             string
}

func (e *ChangedError) Error() string {
	at := e.Path
	if at == "" {
		at = "the list of its files"
	}
	return fmt.Sprintf("version %s of %s is not what was installed: %s %s", e.Version, e.Package, at, e.What)
}

// A UseError says why a version cannot be used on this host.
type UseError struct{ Err error }

func (e *UseError) Error() string { return "the agent cannot start on this host: " + e.Err.Error() }
func (e *UseError) Unwrap() error { return e.Err }

// ErrInUse: a running job uses the version.
var ErrInUse = errors.New("is in use by a job")

// packageDir has the versions of a package.
func (s *Store) packageDir(name string) string {
	return filepath.Join(s.root, "npm", strings.ReplaceAll(name, "/", "+"))
}

// Versions lists the versions of a package that may be used, in order. It reads no files.
func (s *Store) Versions(name string) []string {
	entries, err := os.ReadDir(s.packageDir(name))
	if err != nil {
		return nil // there is none
	}
	var found []string
	for _, e := range entries {
		if e.IsDir() && !s.isBroken(filepath.Join(s.packageDir(name), e.Name())) {
			found = append(found, e.Name())
		}
	}
	return found
}

// List describes the versions of a package, the first that was installed first.
func (s *Store) List(name string) ([]Installed, error) {
	entries, err := os.ReadDir(s.packageDir(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Installed
	for _, e := range entries {
		i, err := s.Get(name, e.Name())
		if _, missing := errors.AsType[*MissingError](err); missing {
			continue // it was removed meanwhile, or is something else
		}
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	slices.SortStableFunc(all, func(a, b Installed) int { return a.At.Compare(b.At) })
	return all, nil
}

// Get describes a version, or returns a [*MissingError].
func (s *Store) Get(name, version string) (Installed, error) {
	i := Installed{dir: filepath.Join(s.packageDir(name), version)}
	if filepath.Base(version) != version || strings.HasPrefix(version, ".") {
		return i, &MissingError{name, version}
	}
	data, err := os.ReadFile(filepath.Join(i.dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return i, &MissingError{name, version}
	}
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	if err == nil && (i.Package != name || i.Version != version || !filepath.IsLocal(i.Program)) {
		err = errors.New("it is of another version")
	}
	if err != nil {
		return i, fmt.Errorf("read what was installed as %s of %s: %w", version, name, err)
	}
	return i, nil
}

// A Use keeps a version from being removed until it is closed.
type Use struct {
	Installed
	lock *disk.Lock
}

// Close ends the use.
func (u *Use) Close() error { return u.lock.Release() }

// Use returns a version whose files are those that were installed, or a [*UseError].
func (s *Store) Use(ctx context.Context, name, version string) (*Use, error) {
	u, err := s.use(ctx, name, version)
	if err != nil {
		return nil, &UseError{err}
	}
	return u, nil
}

func (s *Store) use(ctx context.Context, name, version string) (*Use, error) {
	i, err := s.Get(name, version)
	if err != nil {
		return nil, err
	}
	lock, err := disk.TryLock(filepath.Join(i.dir, lockName), syscall.LOCK_SH)
	if errors.Is(err, disk.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil, &MissingError{name, version} // it is being removed
	}
	if err != nil {
		return nil, err
	}
	// It may have been installed anew since its manifest was read.
	if i, err = s.Get(name, version); err == nil {
		err = s.check(ctx, i)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return &Use{i, lock}, nil
}

// check compares the files of a version with the list, unless they are known and their
// metadata is the same as then.
func (s *Store) check(ctx context.Context, i Installed) error {
	now, err := identity(i.Tree())
	if err == nil && s.isVerified(i.dir, now) {
		return nil
	}
	if err := s.Verify(ctx, i); err != nil { // it says what cannot be read
		return err
	}
	after, err := identity(i.Tree())
	if err == nil && after != now {
		err = &ChangedError{i.Package, i.Version, treeName, "changes while it is read"}
	}
	if err == nil {
		s.setVerified(i.dir, now)
	}
	return err
}

func (s *Store) isVerified(dir, identity string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verified[dir] == identity
}

func (s *Store) setVerified(dir, identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verified[dir] = identity
}

// setBroken remembers that a version must not be used, until it is installed anew.
func (s *Store) setBroken(dir string) {
	info, err := os.Lstat(dir)
	if err != nil {
		return // it is gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[dir] = madeAs(info)
}

func (s *Store) isBroken(dir string) bool {
	s.mu.Lock()
	was := s.broken[dir]
	s.mu.Unlock()
	if was == "" {
		return false
	}
	info, err := os.Lstat(dir)
	return err == nil && madeAs(info) == was
}

// madeAs tells a directory from one that is made later in its place, which may have the same inode.
func madeAs(info os.FileInfo) string {
	return fmt.Sprint(disk.Inode(info), info.ModTime().UnixNano())
}
