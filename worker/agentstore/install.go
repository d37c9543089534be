package agentstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/scratch"
)

// A Request is a version to install.
type Request struct {
	Package Package
	Version string
	// NPM is the program npm, and Env its whole environment.
	NPM string
	Env []string
	// Try starts the program of a tree that is complete but not installed yet. After an
	// error it is not installed; nil: it is not tried.
	Try func(ctx context.Context, i Installed) error
	// Step is called before each step, with words for people.
	Step func(what string)
}

// Install installs a version. Fresh is false if it was installed already.
func (s *Store) Install(ctx context.Context, r Request) (i Installed, fresh bool, err error) {
	if i, err = s.Get(r.Package.Name, r.Version); err == nil {
		return i, false, nil
	}
	if _, missing := errors.AsType[*MissingError](err); !missing {
		return i, false, err
	}
	place := s.packageDir(r.Package.Name)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return i, false, err
	}
	made, lock, done, err := scratch.In(s.root, temporary)
	if err != nil {
		return i, false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	i = Installed{Package: r.Package.Name, Version: r.Version, dir: made}
	r.Step("fetch " + r.Package.Name + "@" + r.Version)
	if err := r.fetch(ctx, i.Tree(), lock); err != nil {
		return i, false, err
	}
	if err := r.complete(ctx, &i); err != nil {
		return i, false, err
	}
	err = os.Rename(made, filepath.Join(place, r.Version))
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) { // another program was faster
		i, err = s.Get(r.Package.Name, r.Version)
		return i, false, err
	}
	if err != nil {
		return i, false, err
	}
	i.dir = filepath.Join(place, r.Version)
	return i, true, syncDir(place)
}

// complete makes a version of what was fetched.
func (r Request) complete(ctx context.Context, i *Installed) error {
	program, err := r.program(i.Tree())
	if err != nil {
		return err
	}
	i.Program, i.At = program, time.Now().UTC()
	if err := os.Mkdir(i.Bin(), 0o755); err != nil { //nolint:gosec // programs in jails look into it
		return err
	}
	if err := os.Symlink(filepath.Join("..", program), filepath.Join(i.Bin(), r.Package.Program)); err != nil {
		return err
	}
	if r.Try != nil {
		r.Step("start " + r.Package.Program)
		if err := r.Try(ctx, *i); err != nil {
			return fmt.Errorf("%s of %s@%s does not start, so it is not installed: %w", r.Package.Program, r.Package.Name, r.Version, err)
		}
	}
	r.Step("read its files")
	files, err := list(ctx, i.Tree())
	if err != nil {
		return err
	}
	text := files.text()
	i.Digest, i.Bytes, i.Files = digest(text), files.bytes, files.files
	if err := os.WriteFile(filepath.Join(i.dir, listName), text, 0o600); err != nil {
		return err
	}
	if err := disk.ReplaceFile(filepath.Join(i.dir, manifestName), filepath.Join(i.dir, "fresh"), i); err != nil {
		return err
	}
	return disk.Sync(i.dir)
}

// program finds the program of a package, relative to the tree.
func (r Request) program(tree string) (string, error) {
	modules := filepath.Join(tree, modulesName)
	for _, pattern := range r.Package.Native {
		found, err := filepath.Glob(filepath.Join(modules, pattern))
		if err != nil {
			return "", err
		}
		if len(found) == 1 {
			return filepath.Rel(tree, found[0])
		}
	}
	data, err := os.ReadFile(filepath.Join(modules, r.Package.Name, "package.json"))
	if err != nil {
		return "", err
	}
	var described struct {
		Version string          `json:"version"`
		Bin     json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(data, &described); err != nil {
		return "", fmt.Errorf("package.json of %s: %w", r.Package.Name, err)
	}
	if described.Version != r.Version {
		return "", fmt.Errorf("npm has installed version %q of %s instead of %s", described.Version, r.Package.Name, r.Version)
	}
	programs := map[string]string{}
	if one := ""; json.Unmarshal(described.Bin, &one) == nil {
		programs[path.Base(r.Package.Name)] = one
	} else if err := json.Unmarshal(described.Bin, &programs); err != nil {
		return "", fmt.Errorf("package %s has no program", r.Package.Name)
	}
	at, ok := programs[r.Package.Program]
	if !ok {
		return "", fmt.Errorf("package %s has no program %s; it has %s", r.Package.Name, r.Package.Program, strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	}
	if at = filepath.Clean(at); !filepath.IsLocal(at) {
		return "", fmt.Errorf("package %s has its program %s elsewhere: %s", r.Package.Name, r.Package.Program, at)
	}
	return filepath.Join(modulesName, filepath.FromSlash(r.Package.Name), at), nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
