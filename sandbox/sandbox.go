// Package sandbox runs an untrusted program, and keeps it away from
// everything its [Spec] does not name.
//
//	Spec ──Backend.Command──▶ Command ──Start──▶ Process ──Wait──▶ Exit
//	(values)                  (values)           (a jail)          (nothing left)
//
// A Spec says what may be touched; its zero value allows next to nothing. A
// [Backend] compiles it for one mechanism and does nothing else. One place,
// [Start], owns pipes, signals, limits and clean-up for all of them. [Run] is
// for callers that only want to wait, with streams of their own, and [Output] for
// callers that only want the program's output.
//
// Tests can inject what is executed: Start does what the [Command] of a Backend
// says. A Backend that wraps another one and changes its Command decides how
// commands run, and one whose Command has no Jail runs a program without one, for
// instance in the tests of an importing package.
//
// A feature that a backend cannot enforce on this host is refused with an
// [UnsupportedError]; the caller accepts less with [Spec.Allow].
//
// After [Process.Wait] or [Process.Close] has returned, no process of the
// jail is alive. The package logs nothing, reads no environment and imports
// nothing but the standard library and golang.org/x/sys.
//
// The first program in a jail is the program that uses this package, executed
// again: importing a backend is enough, see package
// [github.com/penstock-run/penstock/sandbox/jailinit].
package sandbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/sandbox/mechanism"
)

// A Feature is something that a backend enforces. The words appear in job
// records and configuration.
type Feature string

// The features of a jail.
const (
	// FeatureFiles: only what the Spec names, and the system's programs, can
	// be seen; only the workspace, home and temporary directories be written.
	FeatureFiles Feature = "files"
	// FeatureProcesses: processes outside can be neither seen nor signalled.
	FeatureProcesses Feature = "processes"
	// FeatureIPC: no System V or POSIX IPC with the outside.
	FeatureIPC Feature = "ipc"
	// FeatureNetwork: no network but what the Spec grants.
	FeatureNetwork Feature = "network"
	// FeatureSyscalls: system calls that only widen the kernel's surface fail.
	FeatureSyscalls Feature = "syscalls"
	// FeaturePrivileges: no program inside gains privileges by executing another.
	FeaturePrivileges Feature = "privileges"
	// FeatureLandlock: a second wall around files, should the first have a hole.
	FeatureLandlock Feature = "landlock"
	// FeatureTemporary: temporary directories are private and limited in size.
	FeatureTemporary Feature = "temporary"
	// FeatureKill: the end of the jail, and of its starter, ends every process in it.
	FeatureKill Feature = "kill"
	// FeatureMemory: Limits.Memory holds for the jail as a whole.
	FeatureMemory Feature = "memory"
	// FeatureCPU: Limits.CPUs holds.
	FeatureCPU Feature = "cpu"
	// FeaturePIDs: Limits.PIDs holds.
	FeaturePIDs Feature = "pids"
	// FeatureFileSize: Limits.FileSize holds.
	FeatureFileSize Feature = "file-size"
	// FeatureOpenFiles: Limits.OpenFiles holds, for each process.
	FeatureOpenFiles Feature = "open-files"
	// FeatureCPUWeight: Limits.CPUWeight holds against other jails.
	FeatureCPUWeight Feature = "cpu-weight"
	// FeatureDisk: Limits.Disk holds for the workspace and home together.
	FeatureDisk Feature = "disk"
	// FeatureInodes: Limits.Inodes holds for them.
	FeatureInodes Feature = "inodes"
	// FeatureOutput: Limits.OutputRate holds.
	FeatureOutput Feature = "output"
	// FeatureLayers: Spec.Lower can be shown, where the file system of the
	// workspace can be the uppermost layer.
	FeatureLayers Feature = "layers"
	// FeatureImage: Spec.Image can be the root file system.
	FeatureImage Feature = "image"
)

// A Backend compiles Specs for one mechanism of one host.
type Backend interface {
	// Name is the word used for the backend in configuration: "bwrap".
	Name() string
	// Ready returns the Spec that is to be started, or everything for which spec cannot
	// start. What spec names by a name that can change, an image for example, is named by
	// its content then. A backend whose jails need no more than Check can know returns spec
	// as it is. [Spec.Plan] calls it first.
	Ready(ctx context.Context, spec Spec) (Spec, error)
	// Check reports which features the backend enforces on this host. It
	// tries them for real rather than reading version numbers. What Start
	// keeps for every backend is not among them; see Feature.Kept.
	Check(ctx context.Context) ([]Feature, error)
	// Command compiles spec. It must not start anything.
	Command(spec Spec) (*Command, error)
}

// A Command is a compiled Spec: what [Start] executes on the host, and how the jail
// comes from that.
type Command struct {
	Path string   // the host's program
	Args []string // all arguments, beginning with the name that the program's messages begin with; Start completes what package mechanism names
	Env  []string // the environment of the host's program, not of the jail
	Dir  string   // its working directory; "" is "/"
	// StartTimeout bounds the time until the agent is executed, which is 10 ms on
	// an idle machine under bubblewrap; 0: 30 s. Without a jail it means nothing.
	StartTimeout time.Duration
	// Jail says how the jail is made and who holds it; nil: the program of Path
	// itself is the agent, without a jail. On macOS that is the only form, since the
	// jail is what the program does to itself there.
	Jail mechanism.Mechanism
	// Root identifies where the jail's programs come from, as "sha256:" and hexadecimal
	// digits: the image, by its id at the engine, or the list of what the host shows to every
	// jail. Empty or nil: unknown. It may have to read megabytes, and starts nothing.
	Root func() string
}

// name is what the program is called, and begins its messages with.
func (c *Command) name() string {
	if len(c.Args) == 0 {
		return c.Path
	}
	return c.Args[0]
}

// onceRoot is Root, computed once and empty if it is not known.
func (c *Command) onceRoot() func() string {
	if c.Root == nil {
		return func() string { return "" }
	}
	return sync.OnceValue(c.Root)
}

// A Keeper is a [Backend] whose jails belong to a service of the host, which
// may still hold them after their starter was killed. [Leftovers] asks it.
type Keeper interface {
	Name() string
	// Kept lists the tokens of all jails that the service holds, running or
	// not.
	Kept(ctx context.Context) (tokens []string, err error)
	// End returns what End of [mechanism.Served] and Env of the Command are for such
	// a jail, without [mechanism.Meet]: the directory is gone.
	End() (commands [][]string, env []string)
}

// Places inside a jail. Private, anywhere in Args and Env of a Command on macOS, is
// the directory of the host that Start makes for what the jail keeps to itself.
const (
	WorkspacePath = "/workspace"
	HomePath      = "/home/agent"

	Private = "%PRIVATE%"
)

// Kept reports whether [Start] itself keeps the feature on this system, for
// every backend.
func (f Feature) Kept() bool { return slices.Contains(kept, f) }

// required lists what spec wants that a backend may be unable to give.
// A limit left at zero takes its default where the host can enforce it; one
// that was set is required.
func (s Spec) required() []Feature {
	f := []Feature{
		FeatureFiles, FeatureProcesses, FeatureIPC, FeaturePrivileges, FeatureKill, FeatureTemporary,
		FeatureSyscalls,
	}
	if s.Network != NetworkFull {
		f = append(f, FeatureNetwork)
	}
	for _, l := range []struct {
		set     bool
		feature Feature
	}{
		{s.Limits.Memory != 0, FeatureMemory},
		{s.Limits.CPUs != 0, FeatureCPU},
		{s.Limits.PIDs != 0, FeaturePIDs},
		{s.Limits.FileSize != 0, FeatureFileSize},
		{s.Limits.OpenFiles != 0, FeatureOpenFiles},
		{s.Limits.CPUWeight != 0, FeatureCPUWeight},
		{s.Limits.Disk != 0, FeatureDisk},
		{s.Limits.Inodes != 0, FeatureInodes},
		{s.Limits.OutputRate != 0, FeatureOutput},
		{s.Image != "", FeatureImage},
		{len(s.Lower) > 0, FeatureLayers},
	} {
		if l.set {
			f = append(f, l.feature)
		}
	}
	return f
}

// Allow returns a Spec that may run where features are not enforced.
func (s Spec) Allow(features ...Feature) Spec {
	s.missing = append(slices.Clone(s.missing), features...)
	return s
}

// check compares what spec wants with what a backend enforces. It returns
// what is weaker than the strictest jail and yet allowed.
func (s Spec) check(backend string, enforced []Feature) (weaker []Feature, err error) {
	var missing []Feature
	required := s.required()
	for _, f := range append(required, FeatureMemory, FeatureCPU, FeaturePIDs, FeatureFileSize, FeatureOpenFiles, FeatureLandlock) {
		if slices.Contains(enforced, f) || slices.Contains(weaker, f) || slices.Contains(missing, f) {
			continue
		}
		if slices.Contains(required, f) && !slices.Contains(s.missing, f) {
			missing = append(missing, f)
			continue
		}
		weaker = append(weaker, f)
	}
	if missing != nil {
		return nil, &UnsupportedError{Backend: backend, Missing: missing}
	}
	return weaker, nil
}
