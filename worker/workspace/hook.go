package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// programs are the operator's, for the strategy [Hook].
//
//	Create ──▶ a directory ──▶ the attempt ──▶ Remove
//
// Both get PENSTOCK_WORKSPACE_ID, PENSTOCK_REPO, PENSTOCK_REF and
// PENSTOCK_COMMIT, which are the job's words. Create prints the path of the
// directory. Remove is run once for each Create that was begun, with the path in
// PENSTOCK_WORKSPACE; that is empty if Create named none that could be used. It
// is run again until it succeeds, and again if we are killed meanwhile.
type programs struct {
	Create, Remove string        // absolute paths
	Time           time.Duration // that each may take; default 10 minutes
	Env            []string
	// Keep are directories of the host that no workspace may be in, or contain.
	Keep []string
}

// A hooked is the record of a directory that a program made, for the next process. Its
// file lies beside the workspace and is written before each step.
type hooked struct {
	State string    `json:"state"`
	Began time.Time `json:"began"` // the state
	Repo  jobs.Repo `json:"repo"`
	Dir   string    `json:"dir,omitempty"`
	Inode string    `json:"inode,omitempty"`
}

// hookFiles are a directory that a program of the operator made.
type hookFiles struct {
	*site
	hooked *hooked // nil until it is begun
}

func (*hookFiles) strategy() Strategy  { return Hook }
func (*hookFiles) view() *changes.View { return nil }
func (*hookFiles) private() bool       { return true }
func (w *hookFiles) check() error      { return w.hooked.there() }

func (w *hookFiles) show(spec *sandbox.Spec) { spec.Workspace = w.dir }

func (w *hookFiles) released() (bool, error) {
	return w.hooked.State == clearing || w.hooked.State == gone, nil
}

// The states of a hooked.
const (
	creating = "creating"
	made     = "made"
	clearing = "removing"
	gone     = "gone"
)

const hookFile = "hook.json"

// prepare lets the operator's program make the workspace's directory, and takes
// its files as they are for the state before the agent.
func (w *hookFiles) prepare(ctx context.Context, r Request) error {
	if err := w.spaces.cfg.Programs.check(); err != nil {
		return err
	}
	w.hooked = &hooked{Repo: r.Repo}
	if err := w.hookIs(creating); err != nil {
		w.hooked = nil
		return err
	}
	said, err := w.runHook(ctx, w.spaces.cfg.Programs.Create)
	if err != nil {
		return w.hookRefused(fmt.Errorf("create program: %w", err))
	}
	info, err := w.spaces.cfg.Programs.checkPath(said, w.spaces.cfg.Dir)
	if err != nil {
		return fmt.Errorf("create program named %s: %w", disk.Printable(disk.Shorten(said)), err)
	}
	if err := w.claim(ctx, said, disk.Inode(info)); err != nil {
		return fmt.Errorf("create program named %s: %w", disk.Printable(disk.Shorten(said)), err)
	}
	w.dir = said
	return w.recordAll(ctx)
}

// hookNoRef is the exit code by which a create program says that there is no such
// commit: EX_NOINPUT of sysexits.h.
const hookNoRef = 66

// hookRefused interprets the exit code of a create program: a job that cannot have a
// workspace must not be retried for ever.
func (w *hookFiles) hookRefused(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	repo := w.hooked.Repo
	switch {
	case !ok || exit.ExitCode() < 1:
		return err
	case exit.ExitCode() == hookNoRef:
		return errors.Join(&source.RefError{Repo: git.Redact(repo.URL), Ref: cmp.Or(repo.Commit, repo.Ref)}, err)
	}
	return source.Unreachable(repo.URL, err)
}

// hookIs records the next step.
func (w *hookFiles) hookIs(state string) error {
	w.hooked.State, w.hooked.Began = state, time.Now()
	return disk.ReplaceFile(w.path(hookFile), w.path("hook.new"), w.hooked)
}

func readHook(home string) (*hooked, error) {
	data, err := os.ReadFile(filepath.Join(home, hookFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var h hooked
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	return &h, err
}

// claim makes the directory the workspace's, unless another workspace has it, or
// a part of it, be its owner alive or not.
func (w *hookFiles) claim(ctx context.Context, dir, inode string) error {
	l, err := disk.WaitLock(ctx, filepath.Join(w.spaces.cfg.Dir, "claims"), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	// Nothing was written through it.
	defer func() { _ = l.Release() }()
	ids, err := disk.Names(filepath.Join(w.spaces.cfg.Dir, "jobs"))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id == w.id {
			continue
		}
		if at := w.spaces.homes.usedBy(id); at != "" && (disk.Within(dir, at) || disk.Within(at, dir)) {
			return fmt.Errorf("it is in use by workspace %s, at %s", id, disk.Printable(at))
		}
	}
	w.hooked.Dir, w.hooked.Inode = dir, inode
	return w.hookIs(made)
}

// there returns an error unless the directory still is the one that was made.
func (h *hooked) there() error { return disk.CheckDir(h.Dir, h.Inode) }

// release lets the operator's program remove the directory. Nothing of it is
// looked at; whatever the agent made of it is the program's to know.
func (w *hookFiles) release(ctx context.Context, _ *contents) error {
	if w.hooked == nil || w.hooked.State == gone {
		return nil
	}
	if err := w.hookEnded(); err != nil {
		return err
	}
	if err := w.hookIs(clearing); err != nil {
		return err
	}
	if _, err := w.runHook(ctx, w.spaces.cfg.Programs.Remove); err != nil {
		return fmt.Errorf("remove program for %s: %w", disk.Printable(w.hooked.Dir), err)
	}
	return w.hookIs(gone)
}

// hookEnded refuses to continue while a program of a killed worker may still run. The
// program holds a lock; so may a service that it started, for ever, so the lock does
// not count after the program's time limit.
func (w *hookFiles) hookEnded() error {
	l, err := disk.TryLock(w.path("hook.lock"), syscall.LOCK_EX)
	if err == nil {
		return l.Release()
	}
	if errors.Is(err, disk.ErrLocked) && time.Since(w.hooked.Began) > w.spaces.cfg.Programs.Time+hookGrace {
		return nil
	}
	return fmt.Errorf("a program of an earlier worker may still be at it: %w", err)
}

// recordAll records all files as the state before the agent. With too many files to
// compare there is no patch.
func (w *hookFiles) recordAll(ctx context.Context) error {
	w.before = changes.State{Tree: git.EmptyTree, Index: w.path("index.empty")}
	if err := w.ownGit(); err != nil {
		return err
	}
	d := w.hostDirectory()
	d.Private, d.Foreign = true, true
	d.Limits.Files, d.Limits.Bytes = d.Limits.Entries, 32*d.Limits.Bytes // more than this bounds the state before
	before, _, err := d.Snapshot(ctx, w.before, w.path("index"))
	if err == nil && before.Over != nil {
		w.note = "no patch: the files cannot be recorded: " + before.Over.Error()
		return nil
	}
	w.before = before
	return errors.Join(err, w.spaces.trash.Remove(ctx, w.path("stage")))
}
