package workspace

import (
	"path/filepath"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A directory is what an agent wrote in, and what the host needs to say how it
// differs from what was there before. Its methods must not be called at the same
// time.
type directory struct {
	path   string   // what the agent wrote in
	view   *view    // of an overlay: what shows through; nil: the files are in the directory
	home   string   // of the host's own, where no agent can write
	repo   git.Repo // the host's own, in home, with the base's objects
	base   string   // the commit that it began from; "" if there is none
	trash  *disk.Trash
	limits changeLimits
	// listing returns the files of an index.
	listing func(index string) (git.Listing, error)
	// private: the files are ours: make readable what is not.
	private bool
	// foreign: another version control's own files lie at the top, and are no
	// part of the result.
	foreign bool
}

// A view is what shows through the directory of an overlay.
type view struct {
	trees []string // the template's directories, the uppermost first
	layer string   // what setup wrote over them; "" without
}

func (d *directory) file(name string) string { return filepath.Join(d.home, name) }
