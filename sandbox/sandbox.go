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
// commands run, and one whose Command has only Path, Args and Env runs a
// program without a jail, for instance in the tests of an importing package.
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
	"cmp"
	"context"
	"slices"
	"time"
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
	// Check reports which features the backend enforces on this host. It
	// tries them for real rather than reading version numbers. What Start
	// keeps for every backend is not among them; see Feature.Kept.
	Check(ctx context.Context) ([]Feature, error)
	// Command compiles spec. It must not start anything.
	Command(spec Spec) (*Command, error)
}

// A demanding [Backend] needs more than Check can know without a Spec, an image
// for example. [Spec.Plan] asks it first.
type demanding interface {
	// Ready reports everything for which spec cannot start.
	Ready(ctx context.Context, spec Spec) error
}

// A Command is a compiled Spec: what [Start] executes on the host.
type Command struct {
	Path string   // the host's program
	Args []string // all arguments, beginning with the name that the program's messages begin with; an element [Mark] is completed by Start
	Env  []string // the environment of the host's program, not of the jail
	Dir  string   // its working directory; "" is "/"
	Data [][]byte // contents that the program, or jailinit behind a Rendezvous, finds in descriptors from DataFD on
	// StartTimeout bounds the time until the agent is executed, which is 10 ms on
	// an idle machine under bubblewrap; 0: 30 s. Without Control nothing says when that is.
	StartTimeout time.Duration

	// Status means that the program writes bubblewrap's JSON status to StatusFD.
	Status bool
	// Control means that jailinit runs inside and speaks on ControlFD.
	Control bool
	// Hidden and ReadOnly are files and directories of the jail that the agent
	// must not read, or not write to, and that the program of Path has left open:
	// Start covers them from outside while jailinit waits for it. It takes to be
	// root of the host, Status, Control and jailinit.Config.Covered.
	Hidden, ReadOnly []string
	// Directory replaces that of the jail at its Path, unless it is "", from
	// outside, at the same moment and on the same terms. It holds files, all with
	// a mode, and read-only mounts; no process inside can change it.
	Directory struct {
		Path   string
		Files  []File
		Mounts []Mount
	}
	// Devices are the bytes of /dev/shm in a /dev that Start makes on the same
	// terms, of what every program may have; 0: the program of Path makes it.
	Devices int64
	// Sweep means that the kernel does not end the jail with its first
	// process: what is left has to be searched for.
	Sweep bool
	// Rendezvous means that the mechanism is a client of a service of the host
	// (an engine, a service manager), which makes the jail and hands none of our
	// descriptors on. It goes with Control and without Status:
	//
	//	Start ──makes──▶ a directory with a listening socket; Meet is its path
	//	  │ ──executes─▶ the client, which asks the service for a jail that shows
	//	  │              the directory, read-only, at jailinit.MeetPath
	//	  ◀──connects─── jailinit, executed inside as Path() with the one argument
	//	  │              Mark+token, of any user, and without our descriptors
	//	  ──hands in───▶ its end of the control socket and Data; the directory is
	//	                 removed, no process can connect again
	//
	// No content of Data touches a disk. The directory can be entered by every
	// user inside; outside, only by ours and root, since it lies in one of mode
	// 0700. What a service resolves anew for each start of the same jail is gone
	// by then, so a jail is started once.
	//
	// jailinit always supervises there: its end is the end of the jail, and it
	// ends everything when the control socket does, also because the program
	// that called Start was killed. It may be process 1 or a child of a small
	// init; the service has to end what is left when it ends.
	//
	// The client carries the three standard streams for as long as the jail
	// runs, and ends soon after it: one that does not is killed when the output
	// has been read. A client that ends first takes the jail with it. Its exit
	// code does not matter: jailinit tells that of the agent. Where no jail is
	// made, what the client wrote to standard error is [StartError.Detail].
	// On macOS there is only the directory, writable: for what a jail keeps private.
	Rendezvous bool
	// Shown are contents that are files called "0", "1", … in the directory of
	// the Rendezvous, of mode 0444 and in memory, until jailinit has connected:
	// for a mechanism that shows a file of the host inside.
	Shown [][]byte
	// Executable are the numbers of those of Shown that have mode 0555.
	Executable []int
	// End lists the commands that end a jail which a service of the host owns,
	// and remove what the service keeps of it: a program's path and its
	// arguments each, in which [Token] and [Meet] are completed, run with Env in
	// order. They run after the jail's end, whatever ended it, and also before
	// if the jail does not end by itself when it is killed; so they run more than
	// once, and failing because nothing is left is no error. Their failure is
	// one only where processes of the jail are known to be alive. Together they
	// get 20 s. Empty: killing the process of Path is enough.
	End [][]string
}

// name is what the program is called, and begins its messages with.
func (c *Command) name() string {
	if len(c.Args) == 0 {
		return c.Path
	}
	return c.Args[0]
}

func (c *Command) startTimeout() time.Duration { return cmp.Or(c.StartTimeout, 30*time.Second) }

// A Keeper is a [Backend] whose jails belong to a service of the host, which
// may still hold them after their starter was killed. [Leftovers] asks it.
type Keeper interface {
	// Kept lists the tokens of all jails that the service holds, running or
	// not.
	Kept(ctx context.Context) (tokens []string, err error)
	// End returns what Command.End and Command.Env are for such a jail, without
	// [Meet]: the directory is gone.
	End() (commands [][]string, env []string)
}

// A jail and the backend that compiles it agree on these: places inside, the
// descriptors of a [Command], and what Start completes in its arguments.
const (
	WorkspacePath = "/workspace"
	HomePath      = "/home/agent"

	StatusFD  = 3
	ControlFD = 4
	DataFD    = 5
	Mark      = "penstock-jail=" // an argument that is this gets the jail's token appended
	Token     = "%TOKEN%"        // anywhere in Args and End: the token, which is unique; [a-z0-9._-], at most 200 bytes, may begin with "_"
	Meet      = "%MEET%"         // anywhere in Args and End: the directory of the rendezvous
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
