package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// overlayFiles show the base's template through a directory that takes the writes.
type overlayFiles struct{ own }

func (*overlayFiles) strategy() Strategy { return Overlay }

// prepare makes the directory that takes the writes.
func (f *overlayFiles) prepare(ctx context.Context, r Request) error {
	if err := f.begin(ctx, f.origin, repocache.Revision{Ref: r.Repo.Ref, Commit: r.Repo.Commit}); err != nil {
		return err
	}
	if err := f.base.MakeTemplate(ctx); err != nil {
		return err
	}
	f.dir = f.path("workspace")
	f.before = changes.State{Tree: f.commit + "^{tree}", Index: f.base.Index()}
	return os.Mkdir(f.dir, 0o755)
}

func (f *overlayFiles) show(spec *sandbox.Spec) {
	f.own.show(spec)
	spec.Lower = f.base.Trees
	if f.layer != nil {
		spec.Lower = append([]string{f.layer.Files()}, f.base.Trees...)
	}
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f.base.Objects(), Target: repocache.ObjectsPath})
	upper, shown := f.base.Monitor(f.dir, f.layer)
	spec.Upper, spec.Mounts = upper, append(spec.Mounts, shown...)
}

func (f *overlayFiles) view() *changes.View {
	return &changes.View{Trees: f.base.Trees, Layer: f.layer.Files()}
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
	exit, err := s.jail().Run(ctx, sandbox.Spec{
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
