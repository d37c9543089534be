package sandbox

import (
	"io/fs"
	"slices"
	"time"
)

// A Spec says what runs in a jail and what it may touch. It holds plain
// values; the zero value of each field is the strict choice.
type Spec struct {
	Args []string // the program and its arguments, as seen inside
	Env  []string // the complete environment inside, "K=V"; nil means PATH, HOME, USER, TMPDIR and LANG
	Dir  string   // the directory to start in, inside; default WorkspacePath

	Workspace         string // a directory of the host, at WorkspacePath; "" is an empty, private one
	WorkspaceReadOnly bool
	// Lower are directories of the host, the uppermost first, that the
	// workspace shows too: Workspace takes what is written, and nothing may
	// change them while the jail runs. The view exists for the jail alone, in
	// no other table of mounts. No two jails at once may write to a Workspace
	// with Lower; Workspace + ".work" and ".upper" are used by Start, and removed.
	Lower []string
	// Upper is where the jail sees, read-only, what it has written over Lower;
	// "" is nowhere.
	Upper  string
	Home   string // a directory of the host, at HomePath; "" is an empty, private one
	Mounts []Mount
	Files  []File

	Preset  Preset
	Network Network
	// Listen are addresses on the jail's loopback that are opened inside and
	// served outside: "127.0.0.1:3128", "udp/127.0.0.1:53". An unspecified
	// address, "0.0.0.0:443", takes all of 127.0.0.0/8; "[::]:443" takes what
	// IPv6 has. At most 16. Needs NetworkGate. See [Process.Listeners] and
	// [Process.PacketConns].
	Listen []string
	Dial   bool // leaves a process inside for [Process.Dial], [Process.Publish] and [Process.Terminal]
	Limits Limits
	Image  string // of the root file system, for backends that have images; the others refuse it

	Label string        // the jail's owner: [a-z0-9.-]; see Leftovers
	Grace time.Duration // between the polite signal and the kill; default 5 s

	missing []Feature // may be absent; see Allow
}

// A Mount shows a file or directory of the host inside.
type Mount struct {
	Source   string // on the host; may be a symbolic link
	Target   string // inside
	Writable bool
}

// A File is a small read-only file that exists only inside.
type File struct {
	Path string
	Data []byte
	Mode fs.FileMode // default 0644
}

// A Preset is a named choice of system calls and devices.
type Preset string

// A Network says what a jail may reach.
type Network string

// The presets, and the networks.
const (
	PresetStrict  Preset = ""        // agents, compilers, package managers, git
	PresetBrowser Preset = "browser" // nested user namespaces, for a browser's own sandbox
	PresetDebug   Preset = "debug"   // tracing of the jail's own processes
	PresetOffline Preset = "offline" // strict, and no listener either

	NetworkNone Network = ""     // a loopback of its own
	NetworkGate Network = "gate" // the same, and the addresses of Spec.Listen lead outside
	NetworkFull Network = "full" // the host's network
)

// Limits of a jail as a whole, if not said otherwise. Zero takes the default,
// where the host can enforce it; a limit that is set must be enforced.
type Limits struct {
	Memory    int64   // bytes; default 4 GiB
	CPUs      float64 // default: no limit
	PIDs      int     // processes and threads; default 1024
	FileSize  int64   // bytes of one file; default 16 GiB
	OpenFiles int     // of one process; default 65536
	TmpSize   int64   // bytes of /tmp, and of a private home or workspace each; default 1 GiB
	ShmSize   int64   // bytes of /dev/shm; default 256 MiB

	CPUWeight  int   // share of busy processors, 1 to 10000, against the 100 of a jail without; default: no weight
	Disk       int64 // bytes that the workspace and home may grow by; default: no limit
	Inodes     int64 // files and directories that they may grow by; default: no limit
	OutputRate int64 // bytes per second of both outputs together; a program that writes faster is slowed; default: no limit
}

// WithDefaults returns the limits with every zero, except CPUs, replaced.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.Memory, 4<<30)
	setDefault(&l.PIDs, 1024)
	setDefault(&l.FileSize, 16<<30)
	setDefault(&l.OpenFiles, 65536)
	setDefault(&l.TmpSize, 1<<30)
	setDefault(&l.ShmSize, 256<<20)
	return l
}

// WithDefaults returns a Spec in which every field that has a default is set.
// Backends compile that.
func (s Spec) WithDefaults() Spec {
	setDefault(&s.Dir, WorkspacePath)
	setDefault(&s.Grace, 5*time.Second)
	if s.Preset == PresetBrowser {
		setDefault(&s.Limits.ShmSize, 512<<20) // renderers share their pictures there
	}
	s.Limits = s.Limits.WithDefaults()
	s.Files = slices.Clone(s.Files)
	for i := range s.Files {
		setDefault(&s.Files[i].Mode, 0o644)
	}
	if s.Env == nil {
		s.Env = []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=" + HomePath, "USER=agent", "TMPDIR=/tmp", "LANG=C.UTF-8",
		}
	}
	return s
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
