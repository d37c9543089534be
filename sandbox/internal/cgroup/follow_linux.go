package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
)

// A Watch tells which limits were reached in groups that another program makes
// and removes: those of a service's jail.
type Watch struct{ g Group }

// Follow finds the groups that a process is in. Where they cannot be seen,
// the Watch knows of nothing.
func Follow(pid int) *Watch {
	w := &Watch{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return w
	}
	member, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return w
	}
	for _, h := range hierarchies(string(mounts)) {
		d := dir{controllers: h.controllers, v2: h.v2}
		first := ""
		if h.v2 {
			d.controllers = []string{Memory, PIDs}
		} else {
			first = h.controllers[0]
		}
		// The root holds every process: what it counts is not the jail's.
		if path := ownPath(string(member), first); path != "/" {
			d.path = filepath.Join(h.root, path)
			w.g.dirs = append(w.g.dirs, d)
		}
	}
	return w
}

// Reached lists the limits that processes of the groups ran into so far.
func (w *Watch) Reached() []string { return w.g.readReached() }
