package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/worker/internal/disk"
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

	// Over is the limit that kept some of the files out of the change, which then
	// is not all that the agent did; nil: it is. Skipped names what was left out.
	Over *LimitError

	tree string // of the files after the agent; "" if they were not collected

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
	note := w.note
	if w.commit == "" && w.hooked == nil && w.empty() {
		note = "no patch: the job has no repository"
	}
	if note != "" {
		w.collected = &Change{Notes: []string{note}}
		return *w.collected, nil
	}
	var change Change
	if err := w.collect(ctx, &change); err != nil {
		return Change{}, fmt.Errorf("collect workspace %s: %w", w.id, disk.BlameFull(w.home, err))
	}
	w.collected = &change
	return change, nil
}

// Empty reports whether there is nothing to keep of a change.
func (c Change) Empty() bool { return c.PatchSize == 0 && c.Bundle == "" }

func (w *Workspace) collect(ctx context.Context, c *Change) error {
	if err := w.there(); err != nil {
		return err
	}
	if err := w.ownGit(); err != nil {
		return err
	}
	made, err := w.commits(ctx, c)
	if err != nil {
		return err
	}
	before := w.before
	if made != nil {
		before.forced = made.forced
	}
	if made != nil && w.linked != nil {
		w.linked.tip = made.tip
	}
	after, err := w.compare(ctx, before, c)
	if limit, ok := errors.AsType[*LimitError](err); ok {
		// A patch of so many bytes fits whatever is in them: it has the old
		// content, too, and in text that is a quarter longer.
		w.fewer = w.spaces.cfg.Limits.Patch / 4
		after, err = w.compare(ctx, before, c)
		w.fewer = 0
		c.Over = limit
		if _, still := errors.AsType[*LimitError](err); still { // what was deleted is too much
			c.Patch, c.PatchSize, c.SHA256, c.Files = "", 0, "", 0
			return nil
		}
	}
	if err != nil || made == nil {
		return err
	}
	return w.publish(ctx, made, after, c)
}

// compare finds what differs from the state before, and writes the patch.
func (w *Workspace) compare(ctx context.Context, before state, c *Change) (state, error) {
	after, left, err := w.snapshot(ctx, before, w.path("index.after"))
	if err != nil {
		return after, err
	}
	c.Skipped, c.Over, c.tree = left, after.over, after.tree
	return after, w.diff(ctx, after, c)
}

// repo is the host's own git directory for this workspace. What a power cut
// takes of it is collected again, so nothing waits for the disk; and a pack
// stays a pack, which is one file for any number of objects.
func (w *Workspace) repo() git.Repo {
	return git.Repo{
		Dir: w.path("git"), Hold: []*os.File{w.lock.File},
		Set: []string{"core.fsync=none", "fastimport.unpackLimit=1"},
	}
}

// snapshot makes a tree of the workspace's files, given one from before. The
// new index is kept in a file of its own.
func (w *Workspace) snapshot(ctx context.Context, before state, index string) (after state, left []string, err error) {
	stageDir := w.path("stage")
	if err := w.spaces.trash.Remove(ctx, stageDir); err != nil {
		return state{}, nil, err
	}
	st, err := newStage(stageDir)
	if err != nil {
		return state{}, nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	known, err := w.catalog(before.index)
	if err != nil {
		return state{}, nil, err
	}
	walk := newWalk(w.limits(), before, known, st)
	walk.foreign = w.hooked != nil
	walk.chmod = w.private() && !w.inUse
	if w.over {
		return w.overlaid(ctx, walk)
	}
	if err := walk.run(ctx, w.dir); err != nil {
		return state{}, nil, err
	}
	if err := disk.CopyFile(index, before.index); err != nil {
		return state{}, nil, err
	}
	after = state{tree: before.tree, index: index, over: walk.over}
	if st.changed() {
		after.tree, err = w.commitStage(ctx, st, index, &walk.skipped)
	}
	return after, walk.skipped.list(), err
}

// overlaid is the snapshot of an overlay: what the upper directory has is
// what changed.
func (w *Workspace) overlaid(ctx context.Context, walk *walk) (after state, left []string, err error) {
	walk.trees = w.base.Trees
	if err := walk.upper(ctx, w.dir, w.layer.Files()); err != nil {
		return state{}, nil, err
	}
	after = w.before
	after.over = walk.over
	if walk.stage.changed() {
		after.tree, err = w.graft(ctx, walk.known, walk.stage, &walk.skipped)
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
		fmt.Fprintf(&info, "0 %s\t%s\x00", strings.Repeat("0", max(len(w.commit), len(emptyTree))), p)
	}
	raw, err := w.rawEntries(ctx, st)
	if err != nil {
		return "", err
	}
	for _, e := range raw {
		fmt.Fprintf(&info, "%o %s\t%s\x00", e.Mode, e.Object, e.Path)
	}
	if info.Len() > 0 {
		if err := repo.Pipe(ctx, &info, nil, "update-index", "-z", "--index-info"); err != nil {
			return "", err
		}
	}
	return repo.Output(ctx, "write-tree")
}

// rawEntries stores the raw files and says where they belong.
func (w *Workspace) rawEntries(ctx context.Context, st *stage) ([]git.Entry, error) {
	if len(st.raw) == 0 {
		return nil, nil
	}
	var names strings.Builder
	for i := range st.raw {
		fmt.Fprintln(&names, filepath.Join(st.dir, "raw", strconv.Itoa(i)))
	}
	var out bytes.Buffer
	if err := w.repo().Pipe(ctx, strings.NewReader(names.String()), &out, "hash-object", "-w", "--no-filters", "--stdin-paths"); err != nil {
		return nil, err
	}
	ids := strings.Fields(out.String())
	if len(ids) != len(st.raw) {
		return nil, fmt.Errorf("git hash-object named %d of %d files", len(ids), len(st.raw))
	}
	entries := make([]git.Entry, len(ids))
	for i, f := range st.raw {
		entries[i] = git.Entry{Path: f.path, Mode: f.mode, Object: ids[i]}
	}
	return entries, nil
}

func (w *Workspace) addFiles(ctx context.Context, st *stage, index string, left *skipped) error {
	repo := w.repo()
	repo.Index, repo.WorkTree = index, st.files()
	// What is above the threshold goes into one pack. Thousands of small
	// objects would be thousands of files, made and removed again.
	repo.Set = append(repo.Set, "core.bigFileThreshold=1")
	add := func() error {
		in := strings.NewReader(strings.Join(st.paths, "\x00") + "\x00")
		return repo.Pipe(ctx, in, nil, "update-index", "--add", "--replace", "-z", "--stdin")
	}
	err := add()
	failed, ok := errors.AsType[*git.Error](err)
	if !ok || disk.IsFull(err) || ctx.Err() != nil {
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
	both := &diffWriter{patch: out}
	if after.tree != w.before.tree {
		args := append(diffFlags, "--raw", "--no-abbrev", "-p", "--binary", "--full-index", "--no-color", "--src-prefix=a/", "--dst-prefix=b/", w.before.tree, after.tree)
		if err := w.repo().Pipe(ctx, nil, both, args...); err != nil {
			return err
		}
	}
	c.PatchSize, c.SHA256 = out.size, hex.EncodeToString(out.sum.Sum(nil))
	if out.size == 0 {
		return nil
	}
	changes, err := parseRaw(both.raw.String())
	if err != nil {
		return err
	}
	if err := w.verify(ctx, c.Patch, changes); err != nil {
		return err
	}
	c.Files = len(changes)
	c.Notable = notables(changes)
	return nil
}

// verify applies the patch to what it changes, without any file.
func (w *Workspace) verify(ctx context.Context, patch string, changes []fileChange) error {
	var old []git.Entry
	for _, c := range changes {
		if c.old.Mode != 0 {
			old = append(old, c.old)
		}
	}
	repo := w.repo()
	repo.Index = w.path("index.verify")
	if err := writeIndex(repo.Index, old); err != nil {
		return err
	}
	if err := repo.Run(ctx, "apply", "--cached", "--whitespace=nowarn", patch); err != nil {
		return fmt.Errorf("the patch does not apply to its own base: %w", err)
	}
	got, err := readIndex(repo.Index)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if e := got[c.path]; e.Mode != c.now.Mode || (e.Mode != 0 && e.Object != c.now.Object) {
			return fmt.Errorf("the patch does not lead to what %s is", disk.Printable(c.path))
		}
	}
	return nil
}

// notables lists the changes that deserve a look, and why.
func notables(changes []fileChange) []string {
	var found skipped
	for _, change := range changes {
		if why := notable(change); why != "" {
			found.add(change.path, why)
		}
	}
	return found.list()
}

// skipped collects paths with a reason, up to a bound: an agent may leave any
// number of them.
type skipped struct {
	lines []string
	more  int
}

const maxSkipped = 100

func (s *skipped) add(p, why string) { s.note(disk.Printable(disk.Shorten(p)) + ": " + why) }

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
