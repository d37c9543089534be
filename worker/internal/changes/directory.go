package changes

import (
	"path/filepath"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Directory is what an agent wrote in, and what the host needs to say how it
// differs from what was there before. Its methods must not be called at the same
// time.
type Directory struct {
	Path   string   // what the agent wrote in
	View   *View    // of an overlay: what shows through; nil: the files are in the directory
	Home   string   // of the host's own, where no agent can write
	Repo   git.Repo // the host's own, in home, with the base's objects
	Base   string   // the commit that it began from; "" if there is none
	Trash  *disk.Trash
	Limits Limits
	// Listing returns the files of an index.
	Listing func(index string) (git.Listing, error)
	// Private: the files are ours: make readable what is not.
	Private bool
	// Foreign: another version control's own files lie at the top, and are no
	// part of the result.
	Foreign bool
}

// A View is what shows through the directory of an overlay.
type View struct {
	Trees []string // the template's directories, the uppermost first
	Layer string   // what setup wrote over them; "" without
}

func (d *Directory) file(name string) string { return filepath.Join(d.Home, name) }
