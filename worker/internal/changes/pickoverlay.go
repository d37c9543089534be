package changes

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A seen is a directory as the agent saw it. In an overlay it is the job's and setup's
// files, and the template's directory that shows through.
type seen struct {
	layered
	template []int // descriptors of the template's directories that show through
	wants    []want
}

// dirs lists its descriptors, the uppermost first.
func (s seen) dirs() []int {
	return append(s.layered.dirs(), s.template...)
}

func (s seen) close() {
	for _, fd := range s.dirs() {
		unix.Close(fd)
	}
}

// begin opens the workspace itself.
func (p *picker) begin() (seen, error) {
	at := seen{layered: layered{shown: shown{layer: -1}}}
	var err error
	if at.fd, err = p.top(p.root); err != nil {
		return at, fmt.Errorf("open %s: %w", p.root, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(at.fd, &st); err == nil && p.below != nil {
		if at.shown, err = p.below.top(); err == nil {
			err = p.through(&at)
		}
	}
	p.device = uint64(st.Dev)
	if err != nil {
		at.close()
	}
	return at, err
}

// enter opens the directory name of at, with the layers that show through it. It
// returns nil if the directory is gone.
func (p *picker) enter(at seen, name string) (*seen, error) {
	next := &seen{layered: layered{visit: visit{path: path.Join(at.path, name), depth: at.depth + 1}, shown: shown{layer: -1}}}
	var err error
	if p.below != nil {
		next.fd, next.shown, err = p.below.enter(at.layered, name)
	} else {
		next.fd, err = p.open(at.fd, name, unix.O_DIRECTORY)
	}
	if swapped(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", disk.Printable(next.path), err)
	}
	var st unix.Stat_t
	if p.below != nil {
		err = p.through(next)
	} else if err = unix.Fstat(next.fd, &st); err == nil && uint64(st.Dev) != p.device {
		next.close()
		p.skipped.add(next.path, "is on another file system")
		return nil, nil
	}
	if err != nil {
		next.close()
	}
	return next, err
}

// through opens the template's directory that shows through.
func (p *picker) through(at *seen) (err error) {
	if at.alone {
		return nil
	}
	if at.template, err = openTrees(p.below.Trees, at.lower); err != nil {
		return fmt.Errorf("open directory %s of the template: %w", disk.Printable(at.lower), err)
	}
	return nil
}

// swapped reports whether the entry was replaced by another one since.
func swapped(err error) bool { return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP }
