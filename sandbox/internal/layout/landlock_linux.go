package layout

import "golang.org/x/sys/unix"

// Landlock reports whether the kernel has it.
func Landlock() bool {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return errno == 0 && version >= 1
}
