package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A UserTree is a work tree of the user's, as the user's own git finds it.
type UserTree struct {
	Top     string // of the work tree
	Dir     string // its git directory; of a linked worktree its own one
	Common  string // the repository's; the same where there is no other worktree
	Objects string
	Index   string
	IDLen   int // of object names

	// Plain are the user's settings, "name=value", that say how files are
	// written. Attributes and Ignored are the user's files of attributes and of
	// ignore patterns for all repositories, "" if there is none. Nothing in
	// them can start a program where no driver is defined.
	Plain      []string
	Attributes string
	Ignored    string
}

// plain are the settings of a user that we apply to files that we write for them. Each
// has a closed set of values, none of which names a program or a file.
var plain = []string{
	"core.autocrlf", "core.eol", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode",
	"core.protecthfs", "core.protectntfs", "core.sharedrepository", "merge.conflictstyle",
}

// Locate finds the work tree around a directory. It reads the user's configuration and
// runs no program that the configuration names. Without a work tree it returns
// [ErrNoRepository], or git's own reason.
func Locate(ctx context.Context, dir string, env []string) (UserTree, error) {
	ask := asker{dir: dir, env: env}
	out, err := ask.output(ctx, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir",
		"--git-path", "objects", "--git-path", "index", "--show-object-format")
	if err != nil {
		return UserTree{}, err
	}
	lines := strings.Split(out, "\n")
	if len(lines) != 6 {
		return UserTree{}, errors.New("the repository's path has a line break in it")
	}
	p := UserTree{Top: lines[0], Dir: lines[1], Common: lines[2], Objects: lines[3], Index: lines[4], IDLen: 40}
	if lines[5] == "sha256" {
		p.IDLen = 64
	}
	if p.Plain, err = ask.settings(ctx); err != nil {
		return p, err
	}
	p.Attributes, p.Ignored = ask.ownFile(ctx, "core.attributesFile", "attributes"), ask.ownFile(ctx, "core.excludesFile", "ignore")
	return p, nil
}

// UserCommit returns the commit of the first of names that names one, in the user's
// repository around a directory; "" if none does.
func UserCommit(ctx context.Context, dir string, names []string, env []string) (string, error) {
	ask := asker{dir: dir, env: env}
	if _, err := ask.output(ctx, "rev-parse", "--git-dir"); err != nil {
		return "", err
	}
	for _, name := range names {
		commit, err := ask.output(ctx, "rev-parse", "--quiet", "--verify", "--end-of-options", name+"^{commit}")
		if err == nil && IsCommit(commit) {
			return commit, nil
		}
		if _, said := errors.AsType[*Error](err); err != nil && !said {
			return "", err
		}
	}
	return "", nil
}

// An asker runs the user's git for questions that need the user's configuration.
type asker struct {
	dir string
	env []string
}

func (a asker) output(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := Repo{}.exec(ctx, call{
		args: args, env: append(operator(a.env), "GIT_OPTIONAL_LOCKS=0"), out: &out, dir: a.dir,
		// The owner of the repository does not matter, since nothing in it runs.
		settings: []string{"core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.directory=*"},
	})
	return strings.TrimSuffix(out.String(), "\n"), err
}

// none is git config's exit status where there is no such setting.
func none(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == 1
}

func (a asker) settings(ctx context.Context) (list []string, err error) {
	out, err := a.output(ctx, "config", "-z", "--get-regexp", "^("+strings.ReplaceAll(strings.Join(plain, "|"), ".", `\.`)+")$")
	if err != nil && !none(err) {
		return nil, err
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		name, value, given := strings.Cut(entry, "\n")
		if !given {
			value = "true" // git reads a name without a value as true
		}
		if slices.Contains(plain, name) {
			list = append(list, name+"="+value)
		}
	}
	return list, nil
}

// ownFile is a file of the user for all repositories, named by a setting or at its
// usual path.
func (a asker) ownFile(ctx context.Context, setting, usual string) string {
	if file, err := a.output(ctx, "config", "--type=path", "--get", setting); err == nil {
		if !filepath.IsAbs(file) {
			file = filepath.Join(a.dir, file)
		}
		return file
	}
	value := func(name string) string {
		for _, kv := range slices.Backward(a.env) {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	}
	if config := value("XDG_CONFIG_HOME"); config != "" {
		return filepath.Join(config, "git", usual)
	}
	if home := value("HOME"); home != "" {
		return filepath.Join(home, ".config", "git", usual)
	}
	return ""
}

// A Shadow is a git directory of ours beside a work tree of the user's. Git
// that works through it sees the user's files, and of the user's configuration
// what [UserTree.Plain] and [UserTree.Attributes] say: no filter, driver, hook or
// monitor is defined there, whatever attributes name.
type Shadow struct {
	Repo
	user UserTree
	dir  string
}

// NewShadow makes one in dir, which must not exist. With objects, it can read those of
// the user's repository, and writes only its own.
func NewShadow(dir string, p UserTree) (*Shadow, error) {
	if err := Init(dir, p.IDLen, "bare = false"); err != nil {
		return nil, err
	}
	s := &Shadow{user: p, dir: dir, Repo: Repo{Dir: dir, WorkTree: p.Top, Set: p.Plain}}
	if p.Objects != "" {
		if err := os.WriteFile(filepath.Join(dir, "objects/info/alternates"), []byte(Quote(p.Objects)+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	s.Set = append(slices.Clone(s.Set), "core.attributesFile="+filepath.Join(dir, "attributes"), "core.excludesFile="+filepath.Join(dir, "ignore"))
	for copied, name := range map[string]string{
		"attributes": p.Attributes, "info/attributes": filepath.Join(p.Common, "info/attributes"),
		"ignore": p.Ignored, "info/exclude": filepath.Join(p.Common, "info/exclude"),
		"shallow": filepath.Join(p.Common, "shallow"), // where history ends
	} {
		if name == "" || p.Common == "" {
			continue
		}
		data, err := readRegular(name, maxAttributes)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, copied), data, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// maxAttributes is git's limit for a file of attributes.
const maxAttributes = 100 << 20

// OnIndex is the shadow with the user's own index and object store, for a command that
// changes them; with change false it works on copies.
func (s *Shadow) OnIndex(ctx context.Context, change bool) (Repo, error) {
	r := s.Repo
	r.Set = append(slices.Clone(r.Set), "core.splitIndex=false")
	if err := s.shareIndex(); err != nil {
		return r, err
	}
	if change {
		r.Index = s.user.Index
		r.Set = append(r.Set, "core.untrackedCache=keep")
		r.Env = append(slices.Clone(r.Env), "GIT_OBJECT_DIRECTORY="+s.user.Objects)
	} else if err := s.copyIndex(); err != nil {
		return r, err
	}
	// The Stats in git's index may be stale, as after a copy.
	err := r.Run(ctx, "update-index", "-q", "--refresh")
	if none(err) {
		return r, nil // some were changed
	}
	return r, err
}

// maxIndex bounds what is read of an index.
const maxIndex = 1 << 30

// copyIndex gives the shadow the user's index, if there is one. The time of the index
// tells git which files may have changed without a visible sign.
func (s *Shadow) copyIndex() error {
	info, err := os.Stat(s.user.Index)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := readRegular(s.user.Index, maxIndex)
	if err != nil {
		return err
	}
	to := filepath.Join(s.dir, "index")
	return errors.Join(os.WriteFile(to, data, 0o600), os.Chtimes(to, info.ModTime(), info.ModTime()))
}

// At sets the shadow's HEAD to a commit of the user's repository.
func (s *Shadow) At(commit string) error {
	return os.WriteFile(filepath.Join(s.dir, "HEAD"), []byte(commit+"\n"), 0o600)
}

// shareIndex lets git find the shared part of a split index, which lies beside it.
func (s *Shadow) shareIndex() error {
	entries, err := os.ReadDir(filepath.Dir(s.user.Index))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "sharedindex.") {
			err = errors.Join(err, os.Symlink(filepath.Join(filepath.Dir(s.user.Index), e.Name()), filepath.Join(s.dir, e.Name())))
		}
	}
	return err
}

// readRegular reads a regular file of at most so many bytes. It does not block
// if something else lies in its place.
func readRegular(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > limit) {
		err = fmt.Errorf("%s is not a file that git would read", name)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
