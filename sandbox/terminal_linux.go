package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// terminal has a program started inside.
func (j *jail) terminal(ctx context.Context, args, env []string, size [2]uint16) (*Terminal, error) {
	config, err := memory(jailinit.Config{Args: args, Env: env}.Encode())
	if err != nil {
		return nil, err
	}
	defer config.Close()
	status, told, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer told.Close()
	master, err := j.connector.ask(ctx, jailinit.Request{Verb: jailinit.VerbTerminal, Args: []string{
		strconv.Itoa(int(size[0])), strconv.Itoa(int(size[1])),
	}}, config, told)
	if err != nil {
		return nil, errors.Join(err, status.Close()) // which ends what may have been started
	}
	if err := checkMaster(master); err != nil {
		return nil, errors.Join(fmt.Errorf("what came out of the jail is not a terminal: %w", err), master.Close(), status.Close())
	}
	t := &Terminal{master: master, status: status, done: make(chan struct{})}
	go t.follow() // ends with the program, which ends with the jail
	return t, nil
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

// Resize tells the programs in the terminal how many rows and columns it has.
func (t *Terminal) Resize(rows, columns uint16) error {
	return control(t.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// endOfTerminal returns io.EOF if the kernel says that the other side is
// closed.
func endOfTerminal(err error) error {
	if errors.Is(err, syscall.EIO) {
		return io.EOF
	}
	return err
}

func decodeEnd(b []byte, err error) (Exit, error) {
	if err == nil && len(b) == 0 {
		return Exit{}, fmt.Errorf("how the terminal's program ended is not known: %w", os.ErrProcessDone)
	}
	if err != nil {
		return Exit{Stopped: true}, nil // Close has ended it
	}
	code, signal, err := jailinit.DecodeEnd(b)
	return Exit{Code: code, Signal: syscall.Signal(signal)}, err
}
