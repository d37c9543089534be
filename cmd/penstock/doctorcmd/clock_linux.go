package doctorcmd

import (
	"golang.org/x/sys/unix"
)

// checkClock asks the kernel whether its clock is synchronized.
func checkClock() Finding {
	f := Finding{Check: "clock", Status: "ok", Detail: "synchronized"}
	const unsynchronized = 5 // TIME_ERROR of adjtimex(2)
	if state, err := unix.Adjtimex(&unix.Timex{}); err == nil && state == unsynchronized {
		f.Status, f.Detail, f.Fix = "note", "not synchronized", "sudo timedatectl set-ntp true, or run chrony"
		f.Price = "times in logs differ between hosts; leases do not depend on it"
	}
	return f
}
