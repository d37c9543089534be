// Package sandbox runs a program that nobody trusts, and keeps it away from
// everything its [Spec] does not name.
//
//	Spec ──Backend.Command──▶ Command ──Start──▶ Process ──Wait──▶ Exit
//	(values)                  (values)           (a jail)          (nothing left)
//
// A Spec says what may be touched; its zero value allows next to nothing. A
// [Backend] compiles it for one mechanism and does nothing else. One place,
// [Start], owns pipes, signals, limits and clean-up for all of them.
//
// What a backend cannot enforce on this host is refused with an
// [UnsupportedError]; accepting less is said in the call, with [Spec.Allow].
//
// After [Process.Wait] or [Process.Close] has returned, no process of the
// jail is alive. The package logs nothing, reads no environment and imports
// nothing but the standard library and golang.org/x/sys.
//
// The first program in a jail is the program that uses this package, executed
// again. So its main, and the TestMain of its tests, begin with
// [github.com/penstock-run/penstock/sandbox/jailinit.Main].
package sandbox

import (
	"context"
	"slices"
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
	// FeatureKill: the end of the jail, and of who started it, ends every process in it.
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
)

// A Backend compiles Specs for one mechanism of one host.
type Backend interface {
	// Name is the word used for the backend in configuration: "bwrap".
	Name() string
	// Check reports which features the backend enforces on this host. It
	// tries them for real rather than reading version numbers.
	Check(ctx context.Context) ([]Feature, error)
	// Command compiles spec. It must not start anything.
	Command(spec Spec) (*Command, error)
}

// A Command is a compiled Spec: what [Start] executes on the host.
type Command struct {
	Path string   // the host's program
	Args []string // all arguments, beginning with the program's name; an element [Mark] is completed by Start
	Env  []string // the environment of the host's program, not of the jail
	Dir  string   // its working directory; "" is "/"
	Data [][]byte // contents that the program finds in descriptors from DataFD on

	// Status means that the program writes bubblewrap's JSON status to StatusFD.
	Status bool
	// Control means that jailinit runs inside and speaks on ControlFD.
	Control bool
	// Sweep means that the kernel does not end the jail with its first
	// process: what is left has to be searched for.
	Sweep bool
}

// Descriptors of a [Command], and the argument that names the jail.
const (
	StatusFD  = 3
	ControlFD = 4
	DataFD    = 5
	Mark      = "penstock-jail="
)

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
