package repocache

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/gitmonitor"
)

// What package gitmonitor lists of a template or a layer, beside its files.
const (
	directoriesFile = "directories"
	namesFile       = "names" // of a layer
)

// monitorPays reports whether agents' git shall be told which files were written.
func (b *Base) monitorPays() (bool, error) {
	files, err := b.mirror.cache.listings.get(b.Index())
	return len(files) >= b.mirror.cache.cfg.MonitoredFiles && len(b.Commit) == len(git.EmptyTree), err
}

// list stores which directories layers have, the uppermost first.
func list(file string, layers ...string) error {
	directories, err := gitmonitor.Directories(layers)
	if err != nil {
		return err
	}
	return os.WriteFile(file, directories, 0o644)
}

// monitor stores what the monitor tells of a layer that setup has written over a template.
func (m *LayerMaker) monitor() error {
	template, err := os.ReadFile(m.directories)
	if err != nil {
		return err
	}
	names, err := gitmonitor.Names(layerFiles(m.fresh()), template, changes.Marks)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.fresh(), namesFile), names, 0o644); err != nil {
		return err
	}
	return list(filepath.Join(m.fresh(), directoriesFile), layerFiles(m.fresh()))
}

// Monitor is what a jail must show for the monitor of a workspace over the base's template
// and, unless it is nil, a layer: nothing where there is none.
func (b *Base) Monitor(workspace string, layer *Layer) (upper string, shown []sandbox.Mount) {
	template := filepath.Join(b.template(), directoriesFile)
	shown = []sandbox.Mount{
		{Source: template, Target: gitmonitor.DirectoriesPath},
		{Source: filepath.Join(b.Trees[0], ".git/index"), Target: gitmonitor.IndexPath},
	}
	monitored := gitmonitor.Lists(template, b.Trees[0]) && sameDevice(workspace, b.Trees[0])
	if layer != nil {
		directories := filepath.Join(layer.Dir, directoriesFile)
		shown = append(shown, sandbox.Mount{Source: filepath.Join(layer.Dir, namesFile), Target: gitmonitor.LayerPath},
			sandbox.Mount{Source: directories, Target: gitmonitor.LayerDirsPath})
		monitored = monitored && gitmonitor.Lists(directories, layer.Files()) && sameDevice(workspace, layer.Files())
	}
	if !monitored {
		return "", nil
	}
	return gitmonitor.UpperPath, shown
}

// sameDevice reports whether inode numbers of two directories can be compared.
func sameDevice(one, other string) bool {
	var a, b unix.Stat_t
	return unix.Stat(one, &a) == nil && unix.Stat(other, &b) == nil && a.Dev == b.Dev
}
