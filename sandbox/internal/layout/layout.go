// Package layout says what of a host every jail on it shows, whatever makes
// the jail: where its programs are, the few files of /etc, the made-up ones,
// and what of /proc is hidden. It also resolves the places that a Spec names.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
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
	Hosts     []byte          // of a host whose network the Spec shares
	Resolv    []byte          // the same
	Packages  func() []Digest // of the lists of installed packages
}

// A Digest is a file of the host by its SHA-256.
type Digest struct{ Path, SHA256 string }

// Root identifies what the host shows to every jail, beside what a Spec names: its directories
// by their paths, the copied files and the lists of its installed packages by their contents.
// It does not cover files in these directories that are in no list of packages.
func (h Host) Root() string {
	sum := sha256.New()
	for _, m := range h.Links {
		fmt.Fprintf(sum, "link %q %q\n", m.Target, m.Source)
	}
	for _, m := range h.Shared {
		fmt.Fprintf(sum, "shared %q %q\n", m.Target, m.Source)
	}
	for _, f := range h.Copied {
		fmt.Fprintf(sum, "copied %q %x\n", f.Path, sha256.Sum256(f.Data))
	}
	if h.Packages != nil {
		for _, p := range h.Packages() {
			fmt.Fprintf(sum, "packages %q %s\n", p.Path, p.SHA256)
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// nameService is what a jail listens on where names are answered outside.
const nameService = "udp/127.0.0.1:53"

// RunSize is the size of /run in bytes.
const RunSize = 16 << 20

// Files returns the files of /etc in a jail with spec on h: copies, and what
// is made up.
func (h Host) Files(spec sandbox.Spec) []sandbox.File {
	names, resolv := []byte(rootfs.Hosts), []byte(nil)
	if spec.Network == sandbox.NetworkFull {
		names, resolv = append(names, h.Hosts...), h.Resolv
	}
	if slices.Contains(spec.Listen, nameService) {
		resolv = []byte("nameserver 127.0.0.1\n")
	}
	made := []sandbox.File{
		{Path: "/etc/passwd", Data: rootfs.Passwd(rootfs.AgentID, rootfs.AgentID, sandbox.HomePath)},
		{Path: "/etc/group", Data: rootfs.Group(rootfs.AgentID)},
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
