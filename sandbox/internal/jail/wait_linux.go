package jail

import (
	"time"

	"golang.org/x/sys/unix"
)

// wait returns when the process has ended, or after d unless that is negative,
// and reports whether it has. The kernel lets pid 1 of a namespace end only
// after all others in it.
func wait(pidfd int, d time.Duration) bool {
	for deadline := time.Now().Add(d); ; {
		left := -1
		if d >= 0 {
			left = int(max(0, time.Until(deadline)).Milliseconds())
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, left)
		if n > 0 {
			return true
		}
		if (err != nil && err != unix.EINTR) || left == 0 {
			return false
		}
	}
}

// within reports whether one of two channels is closed in time.
func within(d time.Duration, a, b <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a:
	case <-b:
	case <-t.C:
		return false
	}
	return true
}
