package bwrap

import (
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/seccomp"
)

// A host is what compile needs to know of one. All sources are resolved:
// bubblewrap refuses symbolic links in places where they could be swapped.
type host struct {
	arch      seccomp.Arch
	init      string
	workspace string
	home      string
	links     []sandbox.Mount // symbolic links of the root: Source is their text
	shared    []sandbox.Mount
	mounts    []sandbox.Mount
	copied    []sandbox.File
	hidden    []string
	readOnly  []string
	hosts     []byte
	resolv    []byte
}
