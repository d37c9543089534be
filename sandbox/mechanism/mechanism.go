// Package mechanism says how a jail is made and who holds it. A backend returns
// one of three in a [github.com/penstock-run/penstock/sandbox.Command]:
//
//	Contained    Start ──▶ program ──▶ first process ──▶ jailinit, which becomes the agent
//	Supervised   Start ──▶ jailinit ──▶ agent
//	Served       Start ──▶ client ┄┄▶ service ──▶ jailinit ──▶ agent
//
// The program, the supervised jailinit and the client are children of the process
// that calls Start. The kernel ends a contained jail together with its first process.
// In a supervised jail jailinit ends every process that the agent leaves. A served
// jail is ended by its jailinit, or else by commands to the service.
//
// The package holds values only. Each of them is complete: Start itself sets what
// [jailinit.Config] has to say about the mechanism, its fields Supervise and Covered.
package mechanism

import (
	"io/fs"

	"github.com/penstock-run/penstock/sandbox/jailinit"
)

// A Mechanism is Contained, Supervised or Served.
type Mechanism interface{ mechanism() }

// Descriptors of a program, and what Start completes in its arguments.
const (
	StatusFD  = 3 // where the program of a Contained jail says what its first process is
	ControlFD = 4 // jailinit's
	InitFD    = 5 // jailinit's configuration
	DataFD    = 6 // the first of Contained.Data

	Mark  = jailinit.Mark // an argument that is this gets the jail's token appended
	Token = "%TOKEN%"     // anywhere in Args and End: the token, which is unique; [a-z0-9._-], at most 200 bytes, may begin with "_"
	Meet  = "%MEET%"      // anywhere in Args and End of a Served jail: the directory of the rendezvous
)

// Contained is a jail that a program makes as our child, and that the kernel ends
// with its first process, as that of bubblewrap.
//
// The program writes an object of JSON to StatusFD as soon as the first process
// exists, with its number on the host as "child-pid". The first process is a child
// of the program and executes jailinit, as [jailinit.Path] with the one argument
// Mark, and hands ControlFD and InitFD on. jailinit becomes the agent. The program
// ends with the exit code of the agent, as a shell would say it.
type Contained struct {
	Init jailinit.Config
	Data [][]byte // contents that the program finds in descriptors from DataFD on
	// Cover is what Start mounts in the jail from outside, while jailinit waits.
	// Only root of the host can do that; another user leaves it empty.
	Cover Cover
}

// A Cover says what Start hides from the agent, and what it shows instead of what the
// program has made. The zero value changes nothing.
type Cover struct {
	// Hidden and ReadOnly are files and directories of the jail that the agent
	// must not read, or not write to.
	Hidden, ReadOnly []string
	// Directory replaces that of the jail at its Path, unless it is "". No process
	// inside can change it.
	Directory Directory
	// Devices are the bytes of /dev/shm in a /dev that Start makes, of what every
	// program may have; 0: the program makes /dev.
	Devices int64
}

// Empty reports whether c changes nothing.
func (c Cover) Empty() bool {
	return c.Directory.Path == "" && c.Devices == 0 && len(c.Hidden) == 0 && len(c.ReadOnly) == 0
}

// A Directory holds files, all with a mode, and read-only mounts. Their paths are
// those inside the jail.
type Directory struct {
	Path   string
	Files  []File
	Mounts []Mount
}

// A File is contents at a path.
type File struct {
	Path string
	Data []byte
	Mode fs.FileMode
}

// A Mount shows a file or directory of the host.
type Mount struct{ Source, Target string }

// Supervised is a program that is jailinit itself, executed as Path with the one
// argument Mark. It stays as the parent of the agent and inherits what the agent
// leaves. No kernel ends the jail with it, so what is left is searched for.
type Supervised struct {
	Init jailinit.Config
}

// Served is a jail that a service of the host makes and holds: a container engine,
// a service manager. The program is the service's client, and the service hands
// none of our descriptors on:
//
//	Start ──makes──▶ a directory with a listening socket; Meet is its path
//	  │ ──executes─▶ the client, which asks the service for a jail that shows
//	  │              the directory, read-only, at jailinit.MeetPath
//	  ◀──connects─── jailinit, executed inside as Path with the one argument
//	  │              Mark, of any user, and without our descriptors
//	  ──hands in───▶ its end of the control socket and its configuration; the
//	                 directory is removed, no process can connect again
//
// The configuration never touches a disk. The directory can be entered by every
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
// made, what the client wrote to standard error explains why.
type Served struct {
	Init jailinit.Config
	// Shown are contents that are files called "0", "1", … in the directory of
	// the rendezvous, in memory, until jailinit has connected: for a mechanism
	// that shows a file of the host inside.
	Shown []Shown
	// End lists the commands that end the jail and remove what the service
	// keeps of it: a program's path and its arguments each, run with the
	// environment of the client, in order. They run after the jail's end, whatever
	// ended it, and also before if the jail does not end by itself when it is
	// killed; so they run more than once, and failing because nothing is left is
	// no error. Their failure is one only where processes of the jail are known to
	// be alive. Together they get 20 s.
	End [][]string
}

// Shown is the contents of a file in the directory of the rendezvous.
type Shown struct {
	Data       []byte
	Executable bool // mode 0555 instead of 0444
}

func (Contained) mechanism()  {}
func (Supervised) mechanism() {}
func (Served) mechanism()     {}
