package cover

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// made are mounts that are nowhere yet, those that others lie in first. They end
// with their descriptors.
type made []struct {
	mount  int
	target string
}

// add mounts a new file system nowhere; options are names and their values in turn.
func (m *made) add(target, kind string, options ...string) (mount int, err error) {
	config, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen "+kind, err)
	}
	defer unix.Close(config)
	for i := 0; i < len(options) && err == nil; i += 2 {
		err = unix.FsconfigSetString(config, options[i], options[i+1])
	}
	if err == nil {
		err = unix.FsconfigCreate(config)
	}
	if err != nil {
		return -1, os.NewSyscallError("fsconfig "+kind, err)
	}
	mount, err = unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0)
	if err == nil {
		m.keep(mount, target)
	}
	return mount, os.NewSyscallError("fsmount "+kind, err)
}

func (m *made) keep(mount int, target string) {
	*m = append(*m, struct {
		mount  int
		target string
	}{mount, target})
}

// clone mounts what lies at source once more, nowhere, with what is mounted below it.
func (m *made) clone(source, target string, attributes uint64) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	m.keep(tree, target)
	return restrict(tree, attributes)
}

// fixed are the attributes of a mount that no process may change.
const fixed = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// restrict gives attributes to a mount and those below it, and makes them deaf to
// what happens where they come from.
func restrict(mount int, attributes uint64) error {
	attr := &unix.MountAttr{Attr_set: attributes, Propagation: unix.MS_PRIVATE}
	for wait, left := 50*time.Microsecond, forkTimeout; ; wait *= 2 {
		err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
		// A child that this process forks meanwhile, such as the mechanism itself,
		// has the file that was just written open until it executes.
		if !errors.Is(err, unix.EBUSY) || left <= 0 {
			return os.NewSyscallError("mount_setattr", err)
		}
		time.Sleep(wait)
		left -= wait
	}
}

// forkTimeout bounds the time between a fork and an exec.
const forkTimeout = 5 * time.Second

// attach puts all where the calling thread sees their targets.
func (m made) attach() error {
	for _, p := range m {
		if err := unix.MoveMount(p.mount, "", unix.AT_FDCWD, p.target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("show %s: %w", p.target, os.NewSyscallError("move_mount", err))
		}
	}
	return nil
}

func (m *made) close() {
	for _, p := range *m {
		unix.Close(p.mount)
	}
	*m = nil
}
