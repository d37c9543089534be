package oci

import "golang.org/x/sys/unix"

// ownLimits returns how many files, and how many processes, this program may
// let others have at most. Podman lowers its own to what the kernel numbers by
// default; the number of a jail's processes is another limit.
func ownLimits() (files, processes uint64) {
	var l unix.Rlimit
	files, processes = 1024, 1<<15
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		files = l.Max
	}
	if unix.Getrlimit(unix.RLIMIT_NPROC, &l) == nil {
		processes = min(processes, l.Max)
	}
	return files, processes
}

// access reports why this program may not write to path, or nil.
func access(path string) error { return unix.Access(path, unix.W_OK) }
