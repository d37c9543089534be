package jailinit

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights to files, by the version of the kernel's interface that added them.
const (
	fsRead    = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fsVersion = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // version 1: all bits up to this one
)

// devices may be written although they are outside the writable directories;
// what matters in /proc is read-only by its mounts.
var devices = []string{"/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/dev/ptmx"}

// landlock refuses writes outside the writable directories for this thread
// and all it will execute. It is a second wall behind the mount table, so a
// kernel without it is no error: the backend reports the feature as missing.
func landlock(writable []string, scoped bool) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return nil
	}
	all := uint64(fsVersion)
	if version >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	if version >= 6 && scoped {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	// The size is that of the fields known to version 6; older kernels accept
	// a longer structure as long as the rest is zero.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 24, 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(fd))
	if err := allow(int(fd), "/", fsRead); err != nil {
		return err
	}
	for _, p := range append(writable, devices...) {
		if err := allow(int(fd), p, all); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func allow(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // what is not in the view needs no rule
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		// Rights that only a directory can have are refused for a file.
		rights &= unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
			unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
