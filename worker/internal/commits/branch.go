package commits

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// A Branch is the commits of an agent or a user after they have been checked. Their
// objects are in the repository that took them.
type Branch struct {
	Tip   string
	Tree  string // of the last commit
	Count int
	Added []string // files that they add to the base; sorted
}

// bundleScript runs in the jail, beside any process that the agent left there. Its exit
// code says that there is nothing to bundle, which git treats as an error.
const bundleScript = `git bundle create - "$1..HEAD" && exit
new=$(git rev-list -n 1 "$1..HEAD") && [ -z "$new" ] && exit 4
exit 5`

const nothingNew = 4

// A Reader takes over the commits of an agent. It reads the agent's git directory in a
// jail only, and checks the result like the pack of any stranger.
type Reader struct {
	Jail  poolmark.Jail
	Show  func(*sandbox.Spec) // the directory that the agent worked in
	Label string
	Repo  git.Repo // the host's own, which takes the objects
	Base  string   // the commit that the agent began from
	File  string   // where the bundle is written
	Limit int64    // bytes of it
	// Time bounds the jail. A repository in which git waits for ever costs that much,
	// and then its commits are left out.
	Time time.Duration
}

// Read returns the commits; nil if there are none.
func (r Reader) Read(ctx context.Context) (*Branch, error) {
	file, err := os.Create(r.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found, err := r.bundle(ctx, file)
	if !found || err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	made, err := Bundle{Ref: "HEAD", Base: r.Base, Limit: r.Limit, closed: true}.Take(ctx, r.Repo, file)
	if err != nil {
		return nil, err
	}
	made.Added, err = r.added(ctx, made.Tip)
	return made, err
}

// bundle lets git bundle the commits in a jail, and reports whether there are any.
func (r Reader) bundle(ctx context.Context, to *os.File) (found bool, err error) {
	limited, cancel := context.WithTimeout(ctx, r.Time)
	defer cancel()
	var said bytes.Buffer
	out := &git.LimitedWriter{To: to, Left: r.Limit, Err: &changes.LimitError{What: "bytes of commits", Limit: r.Limit}}
	spec := sandbox.Spec{
		Args: []string{"sh", "-c", bundleScript, "sh", r.Base},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		WorkspaceReadOnly: true, Preset: sandbox.PresetOffline, Label: r.Label, Grace: time.Second,
	}
	r.Show(&spec)
	exit, err := r.Jail.Run(limited, spec, sandbox.Streams{Stdout: out, Stderr: &git.LimitedWriter{To: &said, Left: 4 << 10}})
	switch {
	case err != nil:
		return false, err
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case limited.Err() != nil:
		return false, fmt.Errorf("git did not end within %v", r.Time)
	case exit.Code == nothingNew:
		return false, nil
	case !exit.Success():
		return false, fmt.Errorf("git ended with %v: %s", exit, disk.Printable(disk.Shorten(strings.TrimSpace(said.String()))))
	}
	return true, nil
}

// added lists the files that commits added to the base.
func (r Reader) added(ctx context.Context, tip string) ([]string, error) {
	var added bytes.Buffer
	if err := r.Repo.Pipe(ctx, nil, &added, git.DiffTree("-z", "--name-only", "--diff-filter=A", r.Base, tip)...); err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(added.String(), "\x00") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// TreeID names a tree by its id.
func TreeID(ctx context.Context, repo git.Repo, tree string) (string, error) {
	if git.IsCommit(tree) {
		return tree, nil
	}
	id, err := repo.Output(ctx, "rev-parse", "--verify", tree+"^{tree}")
	if err == nil && !git.IsCommit(id) {
		err = fmt.Errorf("git rev-parse printed %q", id)
	}
	return id, err
}
