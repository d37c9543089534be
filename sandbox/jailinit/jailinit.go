// Package jailinit is the first program inside a jail: it opens the jail's
// listeners, hands them out, lowers limits and becomes the agent.
//
//	runner ──executes──▶ mechanism ──executes──▶ Main
//	   ▲                                           │ 1. listen, send the sockets and who I am
//	   └────────── one socket pair ────────────────┤ 2. limits, second wall, directory
//	                                               ▼ 3. execute the agent; the socket closes itself
//
// The program that uses package sandbox is executed again for this, so no
// second binary has to be found or kept in step. [Main] is the first statement
// of its main function, and of TestMain in tests.
//
// Nothing of ours stays in the jail: a process that is gone cannot be traced,
// signalled or asked for its descriptors. Only where the mechanism has no first
// process that ends all others (backend none) does Main stay, as the parent.
package jailinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// Path is where a jail shows the program; it is also its name there.
const Path = "/jail/init"

// Mark begins the argument that names the jail.
const Mark = "penstock-jail="

// EnvMark begins the variable that names it to processes without a jail.
const EnvMark = "PENSTOCK_JAIL="

// Descriptors that Main finds open.
const (
	controlFD = 4
	configFD  = 5
)

// A Config says what Main has to do. It travels in a descriptor, because
// arguments can be read by every process of the host.
type Config struct {
	Args      []string
	Env       []string
	Dir       string
	Listen    []string
	OpenFiles uint64
	FileSize  uint64
	Processes uint64
	Writable  []string // where the second wall lets files be written; none: no wall
	Scoped    bool     // the second wall also refuses abstract sockets and signals that leave the jail
	Supervise bool     // stay as the parent, and end whatever the agent leaves
}

// called says whether this program can be executed again as Main.
var called atomic.Bool

// Executable returns the path of this program, to be executed again as Main.
func Executable() (string, error) {
	if !called.Load() {
		return "", errors.New("this program does not call jailinit.Main first in its main (or TestMain), and would start anew inside the jail")
	}
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	// Another version may want another configuration than the one we write.
	now, err := os.Stat(path)
	running, errRunning := os.Stat("/proc/self/exe")
	if err != nil || (errRunning == nil && !os.SameFile(now, running)) {
		return "", fmt.Errorf("%s was replaced while this program runs; restart it", path)
	}
	return path, nil
}

// Encode returns c in the form that Main reads.
func (c Config) Encode() []byte {
	var b []byte
	list := func(l []string) {
		b = binary.AppendUvarint(b, uint64(len(l)))
		for _, s := range l {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
	}
	for _, l := range [][]string{c.Args, c.Env, {c.Dir}, c.Listen, c.Writable} {
		list(l)
	}
	for _, n := range []uint64{c.OpenFiles, c.FileSize, c.Processes, flag(c.Scoped), flag(c.Supervise)} {
		b = binary.AppendUvarint(b, n)
	}
	return b
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
		n, size := binary.Uvarint(b)
		if size <= 0 {
			err, b = errConfig, nil
			return 0
		}
		b = b[size:]
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
	c.Dir = strings.Join(list(), "")
	c.Listen, c.Writable = list(), list()
	c.OpenFiles, c.FileSize, c.Processes = number(), number(), number()
	c.Scoped, c.Supervise = number() == 1, number() == 1
	if err == nil && (len(b) != 0 || len(c.Args) == 0) {
		err = errConfig
	}
	return c, err
}
