package changes

import (
	"path/filepath"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Directory is a directory that an agent wrote in, with what the host needs to
// compute the changes in it. Its methods must not be called at the same time.
type Directory struct {
	Path   string   // what the agent wrote in
	View   *View    // of an overlay: the lower layers; nil: all files are in the directory
	Home   string   // of the host's own, where no agent can write
	Repo   git.Repo // the host's own, in home, with the base's objects
	Base   string   // the commit that the agent began from; "" if there is none
	Trash  *disk.Trash
	Limits Limits
	// Listing returns the files of an index.
	Listing func(index string) (git.Listing, error)
	// Private: the files are ours: make unreadable ones readable.
	Private bool
	// Foreign: another version control's own files lie at the top, and are not part of
	// the result.
	Foreign bool
}

// A View is the lower layers of an overlay.
type View struct {
	Trees []string // the template's directories, the uppermost first
	Layer string   // the layer that setup wrote over them; "" without
}

func (d *Directory) file(name string) string { return filepath.Join(d.Home, name) }
