package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// A Strategy is a way to give a job files of its own.
type Strategy string

// The strategies.
const (
	// Auto is the fastest that the host can do.
	Auto Strategy = "auto"
	// Overlay shows a checkout that all jobs of a commit share, through a
	// directory that takes what the job writes: constant in time and space.
	Overlay Strategy = "overlay"
	// Clone checks out the files for each job.
	Clone Strategy = "clone"
	// Linked is a linked worktree of the user's own repository. It shares
	// objects and refs with that: only for agents that may write those, and
	// only where somebody named it.
	Linked Strategy = "linked"
	// Hook is a directory that a program of the operator makes, for what is not
	// kept in git. Only where somebody named it.
	Hook Strategy = "hook"
)

// trials remembers whether the host can show overlays.
type trials struct {
	mu   sync.Mutex
	done bool
	err  error
}

// Try reports why strategy cannot be used here, or nil. It does what a job
// would do, once.
func (s *Spaces) Try(ctx context.Context, strategy Strategy) error {
	switch strategy {
	case Clone, Auto, Linked:
		return nil
	case Hook:
		return s.tryHook()
	case Overlay:
	default:
		return fmt.Errorf("unknown workspace strategy %q; known are %s, %s, %s, %s and %s", strategy, Auto, Overlay, Clone, Linked, Hook)
	}
	s.trials.mu.Lock()
	defer s.trials.mu.Unlock()
	if !s.trials.done {
		err := s.tryOverlay(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.trials.done, s.trials.err = true, err
	}
	return s.trials.err
}

func (s *Spaces) tryOverlay(ctx context.Context) (err error) {
	if s.cfg.Jail == nil {
		return errors.New("overlay: this worker has no jail to show one in")
	}
	dir, err := os.MkdirTemp(filepath.Join(s.cfg.Dir, "trash"), "try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.trash.Remove(context.WithoutCancel(ctx), dir)) }()
	for _, sub := range []string{"lower", "upper"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lower/file"), nil, 0o644); err != nil {
		return err
	}
	exit, err := sandbox.Run(ctx, s.cfg.Jail, sandbox.Spec{
		Args:      []string{"sh", "-c", "mkdir d && mv file d/"},
		Workspace: filepath.Join(dir, "upper"), Lower: []string{filepath.Join(dir, "lower")}, Preset: sandbox.PresetOffline, Label: "try",
	}, sandbox.Streams{})
	if err != nil {
		return err
	}
	st, err := os.Lstat(filepath.Join(dir, "upper/file"))
	if !exit.Success() || err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("overlay: a trial ended with %v, err %w", exit, err)
	}
	return nil
}

// provide makes the files in the way that is chosen for r.
func (w *Workspace) provide(ctx context.Context, r Request) error {
	chosen, err := w.spaces.choose(ctx, r)
	if err != nil {
		return err
	}
	if chosen == Hook {
		return w.hook(ctx, r)
	}
	src, err := w.spaces.access.Locate(ctx, r.Repo.URL)
	if err != nil {
		return err
	}
	w.origin = src
	if chosen == Linked {
		return w.link(ctx, r, src)
	}
	if err := w.begin(ctx, src, repocache.Revision{Ref: r.Repo.Ref, Commit: r.Repo.Commit}); err != nil {
		return err
	}
	if chosen == Overlay {
		return w.overlay(ctx)
	}
	return w.clone(ctx)
}

func (s *Spaces) choose(ctx context.Context, r Request) (Strategy, error) {
	switch want := s.cfg.Strategy; {
	case want == Overlay && r.Plain:
		return "", errors.New("workspace strategy overlay: the backend of this job cannot show one; use clone")
	case want == Linked || want == Hook:
		return want, nil
	case want == Clone || r.Plain:
		return Clone, nil
	}
	err := s.Try(ctx, Overlay)
	switch {
	case err == nil:
		return Overlay, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case s.cfg.Strategy == Auto:
		return Clone, nil
	}
	return "", err
}

// overlay makes a workspace that shows the base's template.
func (w *Workspace) overlay(ctx context.Context) error {
	if err := w.base.MakeTemplate(ctx); err != nil {
		return err
	}
	w.over = true
	w.dir = w.path("workspace")
	w.before = changes.State{Tree: w.commit + "^{tree}", Index: w.base.Index()}
	return os.Mkdir(w.dir, 0o755)
}

// Show lets a jail see the workspace. What is in it is unknown from then on.
func (w *Workspace) Show(spec *sandbox.Spec) {
	w.touched()
	w.show(spec)
}

func (w *Workspace) show(spec *sandbox.Spec) {
	spec.Workspace = w.dir
	if w.linked != nil {
		w.showLinked(spec)
	}
	if w.over {
		spec.Lower = w.base.Trees
		if w.layer != nil {
			spec.Lower = append([]string{w.layer.Files()}, w.base.Trees...)
		}
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: w.base.Objects(), Target: repocache.ObjectsPath})
	}
}

// Strategy is how the files were made; "" where the directory was there
// before.
func (w *Workspace) Strategy() Strategy {
	switch {
	case w.over:
		return Overlay
	case w.linked != nil:
		return Linked
	case w.hooked != nil:
		return Hook
	case w.base != nil && w.isolation != jobs.IsolationNone:
		return Clone
	}
	return ""
}
