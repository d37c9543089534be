package jail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// A link is our end of the conversation with jailinit, and what goes inside.
type link struct {
	conn   *net.UnixConn
	inside []*os.File // descriptors for inside: jailinit's end of the conversation and its configuration first
	bind   func(address string, socket *os.File) error
}

func newLink(c jailinit.Config, bind func(string, *os.File) error) (_ *link, err error) {
	l := &link{bind: bind}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	l.inside = append(l.inside, os.NewFile(uintptr(pair[1]), "control"))
	outer := os.NewFile(uintptr(pair[0]), "control")
	defer outer.Close()
	// The kernel then adds the sender's process number as seen from here.
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(outer)
	if err != nil {
		return nil, err
	}
	l.conn = conn.(*net.UnixConn)
	return l, l.add(c.Encode())
}

// add appends files with these contents to what goes inside.
func (l *link) add(contents ...[]byte) error {
	for _, b := range contents {
		f, err := Memory(b)
		if err != nil {
			return err
		}
		l.inside = append(l.inside, f)
	}
	return nil
}

// Memory returns a file that exists in memory only, at its beginning. Pipes
// would block on contents larger than their buffer.
func Memory(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("penstock", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "data")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (l *link) closeInside() {
	for _, f := range l.inside {
		f.Close()
	}
	l.inside = nil
}

// close may be called on nil, and more than once.
func (l *link) close() {
	if l == nil {
		return
	}
	l.closeInside()
	if l.conn != nil {
		l.conn.Close()
	}
}

// interrupt ends what is waited for at the end of ctx, until stop is called. An
// interrupt may come a moment after that.
func interrupt(ctx context.Context, waits ...interface{ SetReadDeadline(time.Time) error }) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		for _, w := range waits {
			_ = w.SetReadDeadline(time.Unix(1, 0)) // it has deadlines
		}
	})
}

// hello is what jailinit has said until the agent is executed.
type hello struct {
	pid     int  // of the agent; of jailinit where it stays
	own     int  // its number inside, where it stays
	stays   bool // as the agent's parent
	sockets []*os.File
}

func (h hello) close() {
	for _, f := range h.sockets {
		f.Close()
	}
}

var errNoInit = errors.New("the first program inside ended without a word")

// receive reads until the agent is executed. It calls ready when jailinit is, and
// waits for what covers the agent's view.
func (l *link) receive(ready func() error) (h hello, err error) {
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	said := false
	buf, oob := make([]byte, 8192), make([]byte, 1024)
	for {
		n, oobn, err := untilOver(func() (int, int, error) {
			n, oobn, _, _, err := l.conn.ReadMsgUnix(buf, oob)
			return n, oobn, err
		})
		if n == 0 && !os.IsTimeout(err) {
			if !said {
				return h, errNoInit
			}
			return h, nil
		}
		if err != nil {
			return h, err
		}
		pid, sockets := Ancillary(oob[:oobn])
		word, rest, _ := strings.Cut(string(buf[:n]), "\x00")
		if word == "bind" {
			if err := l.answerBind(rest, sockets); err != nil {
				return h, err
			}
			continue
		}
		h.sockets = append(h.sockets, sockets...)
		switch word {
		case "ready":
			said, h.pid = true, pid
			if err := ready(); err != nil {
				return h, err
			}
		case "running":
			h.pid, h.own, h.stays = pid, atoi(rest), true
			return h, nil
		default:
			return h, stepError(rest)
		}
	}
}

// untilOver reads once more where a socket that keeps messages apart seems to be
// over. The kernel says so, once, also where a last message came and the socket
// was closed between its look for the one and for the other.
func untilOver(read func() (n, oobn int, err error)) (n, oobn int, err error) {
	if n, oobn, err = read(); n == 0 && !os.IsTimeout(err) {
		n, oobn, err = read()
	}
	return n, oobn, err
}

// Ancillary returns what came beside a message: the sender's number, and files.
func Ancillary(oob []byte) (pid int, files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, nil
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			pid = int(cred.Pid)
		}
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "listener"))
			}
		}
	}
	return pid, files
}

// answerBind binds the one socket that came with the message, and says how
// that went.
func (l *link) answerBind(address string, sockets []*os.File) error {
	defer hello{sockets: sockets}.close()
	if len(sockets) != 1 {
		return fmt.Errorf("%d sockets to bind to %q", len(sockets), address)
	}
	var number syscall.Errno
	if err := l.bind(address, sockets[0]); err != nil && !errors.As(err, &number) {
		return err
	}
	_, err := l.conn.Write(strconv.AppendUint(nil, uint64(number), 10))
	return err
}

// A StepError is jailinit's reason why there is no agent.
type StepError struct {
	Step, Detail string
	Err          error // of the kernel, or nil
}

func (e *StepError) Error() string { return e.Step + ": " + e.Detail }

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }

func stepError(s string) error {
	step, rest, _ := strings.Cut(s, "\x00")
	number, detail, _ := strings.Cut(rest, "\x00")
	e := &StepError{Step: step, Detail: detail}
	if n := atoi(number); n != 0 {
		e.Err = syscall.Errno(n)
	}
	return e
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
