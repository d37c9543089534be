// Package jailinit is the first program inside a jail: it opens the jail's
// listeners, hands them out, lowers limits and becomes the agent.
//
//	runner ──executes──▶ mechanism ──executes──▶ init
//	   ▲                                           │ 1. listen, send the sockets and who I am
//	   └────────── one socket pair ────────────────┤ 2. limits, second wall, directory
//	                                               ▼ 3. execute the agent; the socket closes itself
//
// A mechanism that is a client of a service hands no descriptors on: there init
// first connects to a socket of the runner's, in [MeetPath], and is given them.
//
// The program that uses package sandbox is executed again for this, so no
// second binary has to be found or kept in step. Importing this package, as
// every backend does, is all it needs: an init function takes over where the
// process is the first program of a jail, and nowhere else costs more than a
// comparison. Go initializes packages after what they import, and otherwise in
// the order of their paths: those that need package reflect, most of a large
// program, come after this one, which does without, and which is why it takes
// half a millisecond to be here. They and main do not run.
//
// Otherwise nothing of ours stays in the jail: a process that is gone cannot be traced,
// signalled or asked for its descriptors. Only where the mechanism has no first
// process that ends all others (backend none), or belongs to a service, does it
// stay, as the parent. Then the conversation goes on:
//
//	"running", own number    ──▶    the agent is executed
//	                         ◀──    "terminate": ask the agent's process group to end
//	                         ◀──    end of the socket: the runner wants the end of all, or is dead
//	"reached", limit         ──▶    the jail ran into a limit of its control group
//	"exited", code, signal   ──▶    the agent's end; everything it left is killed
//	                         ◀──    end of the socket: the runner has seen what it wanted
//
// The runner binds an address to listen on that takes a privilege in the jail's
// network. It has that privilege, and no process inside has it:
//
//	"bind", address, socket  ──▶
//	                         ◀──    number of an error, or 0
//
// The runner covers files that the mechanism left open and the agent must not
// see, see [Config.Covered]:
//
//	"ready", sockets         ──▶
//	                         ◀──    "covered": the agent may be executed
//
// Where the runner wants to connect to servers inside, a connector stays: a
// further process, beside the agent, that answers each [Request] on a socket
// pair of its own. Its outer end goes out last among the sockets.
//
// Where the mechanism gives no process table of its own, or no exact view, this
// package makes them first, see [Config.View].
//
// Outside, the same program watches the runner and ends the jails that it could
// not finish, see [ReaperName].
package jailinit

import (
	"errors"
	"os"
)

// Places inside a jail.
const (
	Path     = "/jail/init" // where it shows the program; also its name there
	MeetPath = "/jail/meet" // the directory of the rendezvous, where the mechanism hands no descriptors on

	MeetSocket = "control" // the runner's socket in that directory
	MeetDone   = "done"    // the runner's last message there
)

// CoveredWord is the runner's answer to a jail that waits for it, see
// [Config.Covered].
const CoveredWord = "covered"

// Mark begins the argument that names the jail.
const Mark = "penstock-jail="

// EnvMark begins the variable that names it to processes without a jail.
const EnvMark = "PENSTOCK_JAIL="

// Descriptors that it finds open; others after a rendezvous.
var (
	controlFD = 4
	configFD  = 5
)

// A Config says what the first program has to do. It travels in a descriptor, because
// arguments can be read by every process of the host.
type Config struct {
	Args      []string
	Env       []string
	Dir       string
	Listen    []string
	OpenFiles uint64
	FileSize  uint64
	Processes uint64
	Data      uint64   // memory that one process may ask for; 0: no limit
	Writable  []string // where the second wall lets files be written; none: no wall
	Scoped    bool     // the second wall also refuses abstract sockets and signals that leave the jail
	Supervise bool     // stay as the parent, and end whatever the agent leaves; set by the runner, see mechanism.Supervised
	Covered   bool     // wait for the runner's word that it has covered what the agent must not see; set by the runner, see mechanism.Cover
	Dial      bool     // leave a process inside that answers requests, see Request
	View      []Mount  // what the agent sees, with processes of its own; none: what the mechanism made of it
	User      uint64   // the uid and gid of the agent, in a user namespace of its own; 0: those of the first program
	Filter    []byte   // of system calls, as package seccomp makes it; none: the mechanism has one

	nested bool // this is pid 1 of the namespaces that View needs
}

// Executable returns the path of this program, to be executed again as the
// first program of a jail.
func Executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	// Another version may want another configuration than the one we write.
	now, err := os.Stat(path)
	running, errRunning := os.Stat("/proc/self/exe")
	if err != nil || (errRunning == nil && !os.SameFile(now, running)) {
		return "", errors.New(path + " was replaced while this program runs; restart it")
	}
	return path, nil
}

// Encode returns c in the form that the first program reads.
func (c Config) Encode() []byte {
	var b []byte
	list := func(l []string) {
		b = appendNumber(b, uint64(len(l)))
		for _, s := range l {
			b = appendNumber(b, uint64(len(s)))
			b = append(b, s...)
		}
	}
	var view []string
	for _, p := range c.View {
		view = append(view, p.fields()...)
	}
	for _, l := range [][]string{c.Args, c.Env, {c.Dir}, c.Listen, c.Writable, view, {string(c.Filter)}} {
		list(l)
	}
	for _, n := range []uint64{
		c.OpenFiles, c.FileSize, c.Processes, c.Data, flag(c.Scoped), flag(c.Supervise), flag(c.Covered), flag(c.Dial),
		flag(c.nested), c.User,
	} {
		b = appendNumber(b, n)
	}
	return b
}

// appendNumber writes n in as few bytes as it takes, the least significant
// seven bits first, as package encoding/binary does; that one makes the first
// program wait for package reflect.
func appendNumber(b []byte, n uint64) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// cutNumber reads what appendNumber wrote, unless there was an error before.
func cutNumber(b []byte, before error) (n uint64, rest []byte, err error) {
	for i := 0; before == nil && i < len(b) && i < 10; i++ {
		n |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return n, b[i+1:], nil
		}
	}
	return 0, nil, errConfig
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

var errConfig = errors.New("malformed configuration")

func decode(b []byte) (c Config, err error) {
	number := func() uint64 {
		var n uint64
		n, b, err = cutNumber(b, err)
		return n
	}
	list := func() []string {
		n := number()
		if n > uint64(len(b)) {
			err = errConfig
			return nil
		}
		l := make([]string, n)
		for i := range l {
			size := number()
			if size > uint64(len(b)) {
				err = errConfig
				return nil
			}
			l[i], b = string(b[:size]), b[size:]
		}
		return l
	}
	c.Args, c.Env = list(), list()
	c.Dir = join(list(), "")
	c.Listen, c.Writable = list(), list()
	view, filter := list(), join(list(), "")
	if filter != "" {
		c.Filter = []byte(filter)
	}
	c.OpenFiles, c.FileSize, c.Processes, c.Data = number(), number(), number(), number()
	c.Scoped, c.Supervise, c.Covered, c.Dial, c.nested = number() == 1, number() == 1, number() == 1, number() == 1, number() == 1
	c.User = number()
	if err == nil {
		c.View, err = decodeMounts(view)
	}
	if err == nil && (len(b) != 0 || len(c.Args) == 0) {
		err = errConfig
	}
	return c, err
}
