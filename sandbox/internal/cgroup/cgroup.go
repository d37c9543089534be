// Package cgroup keeps a jail's processes in a control group of their own, so
// that its limits hold for all of them together and none can leave.
//
//	New ──▶ Start (the process is born inside) ──▶ Kill ──▶ Reached ──▶ Remove
//
// Both versions of the kernel's interface are in use on today's hosts, even
// at once. Where no group can be made, a Group does nothing, and [Supported]
// says so.
package cgroup

// Limits of a group. Zero is no limit.
type Limits struct {
	Memory    int64
	CPUs      float64
	CPUWeight int // 1 to 10000; a group without has 100
	PIDs      int
}

// Words for what a group can limit; the same as sandbox.Feature's.
const (
	Memory = "memory"
	CPU    = "cpu"
	PIDs   = "pids"
	Weight = "cpu-weight" // comes with CPU
)
