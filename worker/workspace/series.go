package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A series is what the agent committed, after it has been checked. Its
// objects are in the workspace's own git directory of the host.
type series struct {
	tip    string
	forced []string // files it added; they count even if an ignore file names them
}

// seriesTime bounds the jail that bundles commits. A repository in which git
// waits for ever costs that much, and then goes without commits.
const seriesTime = time.Minute

// bundleScript runs in the jail, beside whatever the agent left there. Its
// exit code tells that there is nothing to bundle.
const bundleScript = `new=$(git rev-list -n 1 "$1..HEAD") || exit 5
[ -n "$new" ] || exit 4
exec git bundle create - "$1..HEAD"`

const nothingNew = 4

// series takes over the agent's commits. The agent's git directory is read in
// a jail only; what comes out of there is checked as any stranger's pack. If
// that fails, the error says why, and the files are collected all the same.
func (w *Workspace) series(ctx context.Context) (*series, error) {
	if w.spaces.cfg.Jail == nil {
		return nil, errors.New("this worker has no jail to read them in")
	}
	file, err := os.Create(w.path("agent.bundle"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found, err := w.bundleInJail(ctx, file)
	if !found || err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	tip, pack, err := readBundle(file, len(w.commit))
	if err != nil {
		return nil, err
	}
	return w.admit(ctx, tip, pack)
}

func (w *Workspace) bundleInJail(ctx context.Context, to *os.File) (found bool, err error) {
	limited, cancel := context.WithTimeout(ctx, seriesTime)
	defer cancel()
	var said bytes.Buffer
	out := &limitedWriter{to: to, left: w.spaces.cfg.Limits.Bytes, err: &LimitError{What: "bytes of commits", Limit: w.spaces.cfg.Limits.Bytes}}
	exit, err := sandbox.Run(limited, w.spaces.cfg.Jail, sandbox.Spec{
		Args: []string{"sh", "-c", bundleScript, "sh", w.commit},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		Workspace: w.dir, WorkspaceReadOnly: true,
		Preset: sandbox.PresetOffline, Label: w.id, Grace: time.Second,
	}, sandbox.Streams{Stdout: out, Stderr: &limitedWriter{to: &said, left: 4 << 10}})
	switch {
	case err != nil:
		return false, err
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case limited.Err() != nil:
		return false, fmt.Errorf("git did not end within %v", seriesTime)
	case exit.Code == nothingNew:
		return false, nil
	case !exit.Success():
		return false, fmt.Errorf("git ended with %v: %s", exit, display(short(strings.TrimSpace(said.String()))))
	}
	return true, nil
}

// readBundle reads the head of a bundle and returns the commit it leads to
// and the pack behind. It accepts one ref and nothing that changes how the
// pack is to be read.
func readBundle(from io.Reader, idLen int) (tip string, pack io.Reader, err error) {
	r := bufio.NewReader(from)
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return "", nil, fmt.Errorf("read bundle: %w", err)
		}
		text := strings.TrimSuffix(string(line), "\n")
		id, name, _ := strings.Cut(text, " ")
		switch {
		case n == 0 && (text == "# v2 git bundle" || text == "# v3 git bundle"):
		case text == "" && tip != "":
			return tip, r, nil
		case text == "@object-format=sha1" && idLen == 40, text == "@object-format=sha256" && idLen == 64:
		case n > 0 && strings.HasPrefix(text, "-"):
		case n > 0 && n < 1000 && tip == "" && name == "HEAD" && git.IsCommit(id) && len(id) == idLen:
			tip = id
		default:
			return "", nil, fmt.Errorf("line %d of the bundle is not expected there", n+1)
		}
	}
}

// admit checks a pack and takes it over: each object is well formed, names in
// it harm nobody, none is missing, and the commits build on the base.
func (w *Workspace) admit(ctx context.Context, tip string, pack io.Reader) (*series, error) {
	repo := w.repo()
	limit := "--max-input-size=" + strconv.FormatInt(w.spaces.cfg.Limits.Bytes, 10)
	if err := repo.Pipe(ctx, pack, nil, "index-pack", "--stdin", "--fix-thin", "--strict", limit); err != nil {
		return nil, err
	}
	if err := repo.Run(ctx, "rev-list", "--objects", "--quiet", tip, "--not", w.commit); err != nil {
		return nil, fmt.Errorf("objects are missing: %w", err)
	}
	if err := repo.Run(ctx, "merge-base", "--is-ancestor", w.commit, tip); err != nil {
		return nil, errors.New("they do not build on the base commit")
	}
	var added bytes.Buffer
	if err := repo.Pipe(ctx, nil, &added, append(diffFlags, "-z", "--name-only", "--diff-filter=A", w.commit, tip)...); err != nil {
		return nil, err
	}
	s := &series{tip: tip}
	for name := range strings.SplitSeq(added.String(), "\x00") {
		if name != "" {
			s.forced = append(s.forced, name)
		}
	}
	return s, nil
}

// commits tells the agent's commits, or why they are not there.
func (w *Workspace) commits(ctx context.Context, c *Change) (*series, error) {
	if w.isolation == jobs.IsolationNone {
		return nil, nil // they are in the user's repository, where the agent made them
	}
	s, err := w.series(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if isDiskFull(err) {
		return nil, err
	}
	if err != nil {
		c.Notes = append(c.Notes, "the agent's commits are not part of the result: "+err.Error())
	}
	return s, nil
}

// publish writes the series as a bundle of one branch. What the agent did not
// commit becomes a last commit, so that the branch and the patch lead to the
// same files.
func (w *Workspace) publish(ctx context.Context, s *series, after state, c *Change) error {
	repo := w.repo()
	repo.Set = []string{"user.name=Penstock agent", "user.email=agent@penstock.invalid"}
	trees, err := repo.Output(ctx, "rev-parse", s.tip+"^{tree}", after.tree)
	if err != nil {
		return err
	}
	tip := s.tip
	if committed, tree, _ := strings.Cut(trees, "\n"); committed != tree {
		if tip, err = repo.Output(ctx, "commit-tree", "-p", tip, "-m", "Uncommitted changes", tree); err != nil {
			return err
		}
	}
	count, err := repo.Output(ctx, "rev-list", "--count", w.commit+".."+tip)
	if err != nil {
		return err
	}
	if c.Commits, err = strconv.Atoi(count); err != nil {
		return err
	}
	if err := repo.Run(ctx, "update-ref", "refs/heads/"+agentBranch, tip); err != nil {
		return err
	}
	c.Head, c.Bundle = tip, w.path("bundle")
	return repo.Run(ctx, "bundle", "create", "--quiet", c.Bundle, w.commit+"..refs/heads/"+agentBranch)
}

// limitedWriter takes a number of bytes, then fails with err, or drops the
// rest if err is nil.
type limitedWriter struct {
	to   io.Writer
	left int64
	err  error
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left && l.err != nil {
		return 0, l.err
	}
	take := p[:min(int64(len(p)), l.left)]
	l.left -= int64(len(take))
	if _, err := l.to.Write(take); err != nil {
		return 0, err
	}
	return len(p), nil
}
