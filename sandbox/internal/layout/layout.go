// Package layout says what of a host every jail on it shows, whatever makes
// the jail: where its programs are, the few files of /etc, the made-up ones,
// and what of /proc is hidden. It also resolves the places that a Spec names.
package layout

import (
	"slices"

	"github.com/penstock-run/penstock/sandbox"
)

// A Host is what compiling a Spec needs to know of one. All sources are
// resolved: a symbolic link could be changed before it is followed.
type Host struct {
	Init      string // the program that becomes the first one inside
	Workspace string
	Home      string
	Links     []sandbox.Mount // symbolic links of the root: Source is their text
	Shared    []sandbox.Mount
	Mounts    []sandbox.Mount
	Copied    []sandbox.File
	Hidden    []string
	ReadOnly  []string
	Hosts     []byte // of a host whose network the Spec shares
	Resolv    []byte // the same
}

// Inside, the agent is an ordinary user.
const (
	UID = 1000

	passwd = "root:x:0:0:root:/root:/bin/sh\n" +
		"agent:x:1000:1000:agent:" + sandbox.HomePath + ":/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
	group = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"
	// Without names for the loopback, servers that listen on localhost fail.
	hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 job\n"
)

// nameService is what a jail listens on where names are answered outside.
const nameService = "udp/127.0.0.1:53"

// RunSize is the size of /run in bytes.
const RunSize = 16 << 20

// Files returns the files of /etc in a jail with spec on h: copies, and what
// is made up.
func (h Host) Files(spec sandbox.Spec) []sandbox.File {
	names, resolv := []byte(hosts), []byte(nil)
	if spec.Network == sandbox.NetworkFull {
		names, resolv = append(names, h.Hosts...), h.Resolv
	}
	if slices.Contains(spec.Listen, nameService) {
		resolv = []byte("nameserver 127.0.0.1\n")
	}
	made := []sandbox.File{
		{Path: "/etc/passwd", Data: []byte(passwd)}, {Path: "/etc/group", Data: []byte(group)},
		{Path: "/etc/hosts", Data: names}, {Path: "/etc/resolv.conf", Data: resolv},
	}
	all := append(slices.Clone(h.Copied), made...)
	for i := range all {
		all[i].Mode = 0o644
	}
	return all
}

// Writable returns the directories in which a jail with spec may write.
func Writable(spec sandbox.Spec) []string {
	writable := []string{sandbox.HomePath, "/tmp", "/run", "/dev/shm"}
	if !spec.WorkspaceReadOnly || spec.Workspace == "" {
		writable = append(writable, sandbox.WorkspacePath)
	}
	for _, m := range spec.Mounts {
		if m.Writable {
			writable = append(writable, m.Target)
		}
	}
	return writable
}
