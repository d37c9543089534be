package connector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/penstock-run/penstock/sandbox/internal/jail"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// Terminal has a program started inside, in a terminal of so many rows and columns.
// master is the terminal, and status says how the program ended; closing it ends the
// program.
func (a *Connector) Terminal(ctx context.Context, args, env []string, size [2]uint16) (master, status *os.File, err error) {
	config, err := jail.Memory(jailinit.Config{Args: args, Env: env}.Encode())
	if err != nil {
		return nil, nil, err
	}
	defer config.Close()
	status, told, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer told.Close()
	master, err = a.ask(ctx, jailinit.Request{Verb: jailinit.VerbTerminal, Args: []string{
		strconv.Itoa(int(size[0])), strconv.Itoa(int(size[1])),
	}}, config, told)
	if err != nil {
		return nil, nil, errors.Join(err, status.Close()) // which ends what may have been started
	}
	if err := checkMaster(master); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("what came out of the jail is not a terminal: %w", err), master.Close(), status.Close())
	}
	return master, status, nil
}

// checkMaster looks at what a descriptor really is: the outer side of a pseudo
// terminal that never blocks. One that does could hold a thread of ours.
func checkMaster(f *os.File) error {
	return control(f, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		const ttyAux, ptmx = 5, 2
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != ttyAux || unix.Minor(st.Rdev) != ptmx {
			return fmt.Errorf("it is a file of mode %o and device %d:%d", st.Mode, unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		if flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_NONBLOCK == 0 {
			return fmt.Errorf("it is open with flags %#x", flags)
		}
		return nil
	})
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var problem error
	if err := raw.Control(func(fd uintptr) { problem = do(int(fd)) }); err != nil {
		return err
	}
	return problem
}

// Resize tells the programs in a terminal how many rows and columns it has.
func Resize(master *os.File, rows, columns uint16) error {
	return control(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}
