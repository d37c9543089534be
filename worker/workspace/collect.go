package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Change is what an agent did to its workspace. The files it names are the
// workspace's and go with it.
type Change struct {
	Patch     string // a file: a patch that applies to Base; "" if there is none
	PatchSize int64
	SHA256    string // of the patch, hexadecimal
	Files     int    // files that the patch changes

	// Bundle is a file with the agent's commits, from Base to Head, as the
	// branch "agent"; "" if it made none. Its last commit has the same files
	// as the patch: what the agent did not commit is a commit of its own.
	Bundle  string
	Commits int
	Head    string

	// Notable are changed files that deserve a look before anybody works in
	// a checkout that has them: they run code there, or lead elsewhere. Each
	// says why.
	Notable []string
	// Skipped are files that are no part of the patch, though no ignore file
	// names them. Each says why.
	Skipped []string
	// Notes say what is missing in this change as a whole, and why.
	Notes []string
}

// Collect says what changed since Prepare. Nothing of the attempt may be
// running any more. It may be called again.
func (w *Workspace) Collect(ctx context.Context) (Change, error) {
	if w.note != "" {
		return Change{Notes: []string{w.note}}, nil
	}
	var change Change
	if err := w.collect(ctx, &change); err != nil {
		return Change{}, fmt.Errorf("collect workspace %s: %w", w.id, blameDisk(w.home, err))
	}
	return change, nil
}

func (w *Workspace) collect(ctx context.Context, c *Change) error {
	made, err := w.commits(ctx, c)
	if err != nil {
		return err
	}
	before := w.before
	if made != nil {
		before.forced = made.forced
	}
	after, left, err := w.snapshot(ctx, before, w.path("index.after"))
	if err != nil {
		return err
	}
	c.Skipped = left
	if err := w.diff(ctx, after, c); err != nil || made == nil {
		return err
	}
	return w.publish(ctx, made, after, c)
}

// repo is the host's own git directory for this workspace.
func (w *Workspace) repo() git.Repo {
	return git.Repo{Dir: w.path("git"), Hold: []*os.File{w.lock.file}}
}

// snapshot makes a tree of the workspace's files, given one from before. The
// new index is kept in a file of its own.
func (w *Workspace) snapshot(ctx context.Context, before state, index string) (after state, left []string, err error) {
	stageDir := w.path("stage")
	if err := w.spaces.trash.remove(ctx, stageDir); err != nil {
		return state{}, nil, err
	}
	st, err := newStage(stageDir)
	if err != nil {
		return state{}, nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	walk, err := newWalk(w.spaces.cfg.Limits, before, st)
	if err != nil {
		return state{}, nil, err
	}
	walk.chmod = w.dir == w.path("workspace")
	if err := walk.run(ctx, w.dir); err != nil {
		return state{}, nil, err
	}
	if err := copyFile(index, before.index); err != nil {
		return state{}, nil, err
	}
	after = state{tree: before.tree, index: index}
	if st.changed() {
		after.tree, err = w.commitStage(ctx, st, index, &walk.skipped)
	}
	return after, walk.skipped.list(), err
}

// commitStage adds what is staged to an index and writes its tree. Attributes
// come from the index while files are added, and so from the base: those that
// the agent changed are added afterwards.
func (w *Workspace) commitStage(ctx context.Context, st *stage, index string, left *skipped) (string, error) {
	repo := w.repo()
	repo.Index = index
	if len(st.paths) > 0 {
		if err := w.addFiles(ctx, st, index, left); err != nil {
			return "", err
		}
	}
	var info bytes.Buffer
	for _, p := range st.deleted {
		fmt.Fprintf(&info, "0 %s\t%s\x00", strings.Repeat("0", len(w.commit)), p)
	}
	if err := w.addRaw(ctx, st, &info); err != nil {
		return "", err
	}
	if info.Len() > 0 {
		if err := repo.Pipe(ctx, &info, nil, "update-index", "-z", "--index-info"); err != nil {
			return "", err
		}
	}
	return repo.Output(ctx, "write-tree")
}

// addRaw stores the raw files and writes the lines that put them in an index.
func (w *Workspace) addRaw(ctx context.Context, st *stage, info *bytes.Buffer) error {
	if len(st.raw) == 0 {
		return nil
	}
	var names strings.Builder
	for i := range st.raw {
		fmt.Fprintln(&names, filepath.Join(st.dir, "raw", strconv.Itoa(i)))
	}
	var out bytes.Buffer
	if err := w.repo().Pipe(ctx, strings.NewReader(names.String()), &out, "hash-object", "-w", "--no-filters", "--stdin-paths"); err != nil {
		return err
	}
	ids := strings.Fields(out.String())
	if len(ids) != len(st.raw) {
		return fmt.Errorf("git hash-object named %d of %d files", len(ids), len(st.raw))
	}
	for i, f := range st.raw {
		fmt.Fprintf(info, "%o %s\t%s\x00", f.mode, ids[i], f.path)
	}
	return nil
}

func (w *Workspace) addFiles(ctx context.Context, st *stage, index string, left *skipped) error {
	repo := w.repo()
	repo.Index, repo.WorkTree = index, st.files()
	// What is above the threshold goes into one pack. Thousands of small
	// objects would be thousands of files, made and removed again.
	repo.Set = []string{"core.bigFileThreshold=1"}
	add := func() error {
		in := strings.NewReader(strings.Join(st.paths, "\x00") + "\x00")
		return repo.Pipe(ctx, in, nil, "update-index", "--add", "--replace", "-z", "--stdin")
	}
	err := add()
	failed, ok := errors.AsType[*git.Error](err)
	if !ok || isDiskFull(err) || ctx.Err() != nil {
		return err
	}
	// A file that cannot be converted as the base's attributes demand must
	// not keep the others. Our own attributes beat all, and turn that off.
	plain := []byte("* -text -eol -ident -filter !working-tree-encoding\n")
	if err := os.WriteFile(w.path("git/info/attributes"), plain, 0o600); err != nil {
		return err
	}
	defer os.Remove(w.path("git/info/attributes"))
	left.note("files were taken without conversion, because " + failed.Message)
	return add()
}

var diffFlags = []string{"diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}

// diff writes the patch from the state before to the state after, and checks
// that it leads from one to the other.
func (w *Workspace) diff(ctx context.Context, after state, c *Change) error {
	c.Patch = w.path("patch")
	f, err := os.Create(c.Patch)
	if err != nil {
		return err
	}
	defer f.Close()
	out := &patchWriter{file: f, sum: sha256.New(), limit: w.spaces.cfg.Limits.Patch}
	if after.tree != w.before.tree {
		args := append(diffFlags, "-p", "--binary", "--full-index", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", w.before.tree, after.tree)
		if err := w.repo().Pipe(ctx, nil, out, args...); err != nil {
			return err
		}
	}
	c.PatchSize, c.SHA256 = out.size, hex.EncodeToString(out.sum.Sum(nil))
	if out.size == 0 {
		return nil
	}
	if err := w.verify(ctx, c.Patch, after.tree); err != nil {
		return err
	}
	changes, err := w.changes(ctx, after.tree)
	if err != nil {
		return err
	}
	c.Files = len(changes)
	var found skipped
	for _, change := range changes {
		if why := notable(change); why != "" {
			found.add(change.path, why)
		}
	}
	c.Notable = found.list()
	return nil
}

// verify applies the patch to the state before, without any file.
func (w *Workspace) verify(ctx context.Context, patch, want string) error {
	repo := w.repo()
	repo.Index = w.path("index.verify")
	if err := copyFile(repo.Index, w.before.index); err != nil {
		return err
	}
	if err := repo.Run(ctx, "apply", "--cached", "--whitespace=nowarn", patch); err != nil {
		return fmt.Errorf("the patch does not apply to its own base: %w", err)
	}
	got, err := repo.Output(ctx, "write-tree")
	if err == nil && got != want {
		err = fmt.Errorf("the patch leads to tree %s, not to %s", got, want)
	}
	return err
}

// A fileChange is one line of a raw diff; a mode of 0 means: not there.
type fileChange struct {
	path          string
	oldMode, mode uint32
}

func (w *Workspace) changes(ctx context.Context, tree string) ([]fileChange, error) {
	var raw bytes.Buffer
	if err := w.repo().Pipe(ctx, nil, &raw, append(diffFlags, "-z", "--raw", w.before.tree, tree)...); err != nil {
		return nil, err
	}
	var all []fileChange
	fields := strings.Split(strings.TrimSuffix(raw.String(), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		meta := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(meta) < 2 {
			return nil, fmt.Errorf("git diff-tree printed %q", fields[i])
		}
		old, errOld := strconv.ParseUint(meta[0], 8, 32)
		mode, errNew := strconv.ParseUint(meta[1], 8, 32)
		if err := errors.Join(errOld, errNew); err != nil {
			return nil, err
		}
		all = append(all, fileChange{path: fields[i+1], oldMode: uint32(old), mode: uint32(mode)})
	}
	return all, nil
}

// patchWriter writes a file up to a limit and sums it.
type patchWriter struct {
	file  *os.File
	sum   hash.Hash
	size  int64
	limit int64
}

func (p *patchWriter) Write(b []byte) (int, error) {
	if p.size += int64(len(b)); p.size > p.limit {
		return 0, &LimitError{What: "bytes of patch", Limit: p.limit}
	}
	p.sum.Write(b)
	return p.file.Write(b)
}

// skipped collects paths with a reason, up to a bound: an agent may leave any
// number of them.
type skipped struct {
	lines []string
	more  int
}

const maxSkipped = 100

func (s *skipped) add(p, why string) { s.note(display(short(p)) + ": " + why) }

func (s *skipped) note(line string) {
	if len(s.lines) == maxSkipped {
		s.more++
		return
	}
	s.lines = append(s.lines, line)
}

func (s *skipped) list() []string {
	if s.more > 0 {
		return append(s.lines, fmt.Sprintf("and %d more", s.more))
	}
	return s.lines
}
