package cover

import (
	"errors"
	"fmt"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Devices are a directory of devices of the host, with terminals and shared memory
// of the jail's own. bubblewrap takes a millisecond and a half for it.
type Devices struct {
	Path   string      // in the jail
	Names  []string    // in the host's /dev
	Links  [][2]string // symbolic links: name and text
	Shared int64       // bytes of the shared memory
}

// prepare makes d, with the devices that the calling thread sees.
func (d Devices) prepare() (m made, err error) {
	defer func() {
		if err != nil {
			m.close()
			err = fmt.Errorf("make %s: %w", d.Path, err)
		}
	}()
	root, err := m.add(d.Path, "tmpfs", "mode", "0755", "size", "65536")
	if err != nil {
		return m, err
	}
	for _, l := range d.Links {
		if err := unix.Symlinkat(l[1], root, l[0]); err != nil {
			return m, fmt.Errorf("link %s: %w", l[0], err)
		}
	}
	for _, name := range d.Names {
		err := File{Path: name, Mode: 0o666}.write(root)
		if err == nil {
			err = m.clone("/dev/"+name, path.Join(d.Path, name), unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		}
		if err != nil {
			return m, fmt.Errorf("device %s: %w", name, err)
		}
	}
	if err := errors.Join(directories(root, "pts"), directories(root, "shm")); err != nil {
		return m, err
	}
	terminals, err := m.add(path.Join(d.Path, "pts"), "devpts", "ptmxmode", "0666", "mode", "0620")
	if err == nil {
		err = restrict(terminals, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	}
	if err != nil {
		return m, err
	}
	shared, err := m.add(path.Join(d.Path, "shm"), "tmpfs", "mode", "1777", "size", strconv.FormatInt(d.Shared, 10))
	if err == nil {
		err = restrict(shared, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	}
	return m, errors.Join(err, restrict(root, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC))
}
