package jailinit

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
)

// Rights to files, by the version of the kernel's interface that added them.
const (
	fsRead    = landlockFsExecute | landlockFsReadFile | landlockFsReadDir
	fsVersion = landlockFsMakeSym<<1 - 1 // version 1: all bits up to this one
)

// devices lists what may be written although it is outside the writable directories.
// What matters in /proc is read-only by its mounts.
func devices() []string {
	list := []string{"/proc", "/dev/pts", "/dev/ptmx"}
	for _, name := range rootfs.Devices {
		list = append(list, "/dev/"+name)
	}
	return list
}

// landlock refuses writes outside the writable directories for this thread
// and all it will execute. It is a second wall behind the mount table, so a
// kernel without it is no error: the backend reports the feature as missing.
func landlock(writable []string, scoped bool) error {
	version, _, errno := syscall.Syscall(sysLandlockCreate, 0, 0, landlockVersionFlag)
	if errno != 0 {
		return nil
	}
	all := uint64(fsVersion)
	if version >= 2 {
		all |= landlockFsRefer
	}
	if version >= 3 {
		all |= landlockFsTruncate
	}
	attr := struct{ files, network, scoped uint64 }{files: all} // struct landlock_ruleset_attr of version 6
	if version >= 6 && scoped {
		attr.scoped = landlockScopeAbstract | landlockScopeSignal
	}
	// Older kernels accept a longer structure as long as the rest is zero.
	fd, _, errno := syscall.Syscall(sysLandlockCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	defer syscall.Close(int(fd))
	if err := allow(int(fd), "/", fsRead); err != nil {
		return err
	}
	for _, p := range append(writable, devices()...) {
		if err := allow(int(fd), p, all); err != nil {
			return err
		}
	}
	if err := prctl(prSetNoNewPrivs, 1, 0); err != nil {
		return err
	}
	if _, _, errno := syscall.Syscall(sysLandlockRestrict, fd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func allow(ruleset int, path string, rights uint64) error {
	fd, err := syscall.Open(path, openPath|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOENT) {
		return nil // what is not in the view needs no rule
	}
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		// Rights that only a directory can have are refused for a file.
		rights &= landlockFsExecute | landlockFsReadFile |
			landlockFsWriteFile | landlockFsTruncate
	}
	rule := struct { // struct landlock_path_beneath_attr, which is packed: its end is padding here
		allowed uint64
		parent  int32
	}{rights, int32(fd)}
	_, _, errno := syscall.Syscall6(sysLandlockAddRule, uintptr(ruleset), landlockPathBeneath,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
