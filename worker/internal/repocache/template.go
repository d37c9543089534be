package repocache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/gitmonitor"
)

// ObjectsPath is where a jail sees the objects of its workspace's history:
// beside the workspace and read-only, because git touches packs that it finds
// among its own, and a touched file is copied whole.
const ObjectsPath = "/penstock/objects"

// A base's template is its commit checked out, with a git directory as the
// agent finds it. Overlays show it; nothing may ever change it. Its files are in
// "tree", "template.new" while they are made.
func (b *Base) template() string { return filepath.Join(b.Dir, "template") }
func (b *Base) Objects() string  { return filepath.Join(b.Git(), "objects") }

// MakeTemplate makes sure that a base has its template.
func (b *Base) MakeTemplate(ctx context.Context) (err error) {
	m := b.mirror
	if b.Trees, err = b.stack(); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Release()) }()
	// Another process may have made it while this one waited for the lock.
	if b.Trees, err = b.stack(); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := b.template() + ".new"
	if err := m.cache.cfg.Trash.Remove(ctx, fresh); err != nil {
		return err
	}
	if err := b.fillTemplate(ctx, l, fresh); err != nil {
		err = fmt.Errorf("check out the template of %s: %w", m.source.Name, err)
		return errors.Join(err, m.cache.cfg.Trash.Remove(context.WithoutCancel(ctx), fresh))
	}
	if err := publish(fresh, b.template()); err != nil {
		return err
	}
	b.Trees, err = b.stack()
	return err
}

// fillTemplate makes a template of what differs from another one, or a whole,
// also where that one turns out to be damaged.
func (b *Base) fillTemplate(ctx context.Context, l *disk.Lock, fresh string) error {
	below, err := b.mirror.nearest(b)
	if err == nil && below != nil {
		if err = b.fillOver(ctx, l, below, fresh); err == nil || ctx.Err() != nil {
			return err
		}
		err = b.mirror.cache.cfg.Trash.Remove(ctx, fresh)
	}
	if err != nil {
		return err
	}
	return b.fillOver(ctx, l, nil, fresh)
}

// fillOver makes a template over the one below, or a whole where that is nil.
func (b *Base) fillOver(ctx context.Context, l *disk.Lock, below *Base, fresh string) error {
	dir := filepath.Join(fresh, "tree")
	if err := dotGit(dir, b); err != nil {
		return err
	}
	var lower []string
	var err error
	if below != nil {
		lower = below.Trees
		err = b.delta(ctx, below, fresh)
	} else {
		// Only this process has written in this directory.
		repo := git.Repo{Dir: b.Git(), WorkTree: dir, Index: filepath.Join(dir, ".git/index"), Hold: []*os.File{l.File}, Progress: b.mirror.progress.Of("checkout")}
		err = repo.CheckOut(ctx, "HEAD")
	}
	if err != nil {
		return err
	}
	old := time.Now().Add(-time.Minute)
	if err := backdate(dir, old); err != nil {
		return err
	}
	monitored, err := b.monitorPays()
	if err != nil {
		return err
	}
	// Git records what the files look like from inside a jail: there they have other
	// owners. With an index that does not match, the first command of every agent would
	// read every file.
	if !monitored {
		return b.inside(ctx, sandbox.Spec{Workspace: dir, Lower: lower, Args: []string{"git", "update-index", "-q", "--index-version", "4", "--refresh"}}, nil)
	}
	if below == nil {
		if err := b.foretell(ctx, dir, old); err != nil {
			return err
		}
	}
	script := "set -e\n" + gitmonitor.Nothing + gitmonitor.Prepare
	if err := b.inside(ctx, sandbox.Spec{Workspace: dir, Lower: lower, Args: []string{"sh", "-c", script}}, nil); err != nil {
		return err
	}
	return list(filepath.Join(fresh, directoriesFile), append([]string{dir}, lower...)...)
}

// foretell writes into the index of a whole template what git in a jail will see of the files,
// so that it does not read all of them. It looks at one of them there; git looks at the others
// by itself, and reads those that are different.
func (b *Base) foretell(ctx context.Context, dir string, times time.Time) error {
	var said bytes.Buffer
	if err := b.inside(ctx, sandbox.Spec{Workspace: dir, Args: []string{"stat", "-c", "%u %g", ".git/config"}}, &said); err != nil {
		return err
	}
	var uid, gid uint32
	if _, err := fmt.Sscan(said.String(), &uid, &gid); err != nil {
		return fmt.Errorf("stat in a jail printed %q: %w", said.String(), err)
	}
	return git.SetOwner(filepath.Join(dir, ".git/index"), uid, gid, times)
}

// templateConfig makes the agent's git fast over a template. A small index is
// copied fast. What the kernel reports as the time of a change is not kept when
// a template is moved; git, if it went by that, would read every file again.
const templateConfig = "[core]\n\ttrustctime = false\n[index]\n\tversion = 4\n"

// dotGit begins a template's directory with a git directory that has no index.
func dotGit(dir string, b *Base) error {
	dotGit := filepath.Join(dir, ".git")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := b.LendGit(dotGit); err != nil {
		return err
	}
	return configure(dotGit, templateConfig)
}

// backdate makes the files below dir, except git's, as old as that. Git reads a file
// again if it is as young as the index, and does not notice a change that keeps size
// and time, in seconds: so the files have to be older than both the index and any
// change of an agent.
func backdate(dir string, to time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(to.UnixNano()), unix.NsecToTimespec(to.UnixNano())}
	return filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git" && filepath.Dir(name) == dir:
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		return os.NewSyscallError("set the time of "+disk.Printable(name), unix.UtimesNanoAt(unix.AT_FDCWD, name, times, unix.AT_SYMLINK_NOFOLLOW))
	})
}

// configure adds settings to those of an agent's git directory.
func configure(dotGit, settings string) error {
	f, err := os.OpenFile(filepath.Join(dotGit, "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(settings)
	return errors.Join(err, f.Close())
}

// copyWithoutObjects copies a git directory without its objects.
func copyWithoutObjects(to, from string) error {
	for _, sub := range []string{"objects/info", "objects/pack", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(to, sub), 0o755); err != nil {
			return err
		}
	}
	return filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		switch {
		case err != nil:
			return err
		case rel == "objects":
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}

// inside runs a program in a jail that shows a template which is being made.
func (b *Base) inside(ctx context.Context, spec sandbox.Spec, out io.Writer) error {
	var said bytes.Buffer
	spec.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1"}
	spec.Mounts = []sandbox.Mount{{Source: b.Objects(), Target: ObjectsPath}}
	spec.Preset, spec.Label = sandbox.PresetOffline, "template"
	exit, err := b.mirror.cache.cfg.Jail.Run(ctx, spec, sandbox.Streams{Stdout: out, Stderr: &git.LimitedWriter{To: &said, Left: 4 << 10}})
	if err == nil && !exit.Success() {
		err = fmt.Errorf("%s ended with %v: %s", spec.Args[0], exit, strings.TrimSpace(said.String()))
	}
	return err
}
