package jail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/mechanism"
	"golang.org/x/sys/unix"
)

// How long what should happen by itself may take before it is forced. Each is
// milliseconds on an idle machine.
const (
	ownEnd    = 2 * time.Second // jailinit kills everything and ends
	clientEnd = 5 * time.Second // the client sees that the jail has ended, and ends
	forcedEnd = 3 * time.Second // the kernel kills
)

// served is a jail of [mechanism.Served]: neither it nor what is in it are our
// children, and only the client is.
type served struct {
	token      string
	end        [][]string
	env        []string
	unread     func() bool // output of the client waits for a reader
	rendezvous *rendezvous
	supervisor *supervisor
	client     *os.Process // set by Begin

	killing    chan struct{} // closed by Kill
	met        chan struct{} // closed by Meet
	clientGone chan struct{} // closed by End
	overseen   chan struct{} // closed when oversee has returned

	mu       sync.Mutex
	first    int  // guarded by mu; jailinit; -1 if not known
	firstPID int  // guarded by mu; 0 if not known: it may be out of sight, where we are in a container ourselves
	isInit   bool // guarded by mu; first is process 1 of its namespace
	ended    bool // guarded by mu
}

func newServed(m mechanism.Served, c Config) (Jail, string, error) {
	link, err := newLink(m.Init, c.Bind)
	if err != nil {
		return nil, "start", err
	}
	r, err := newRendezvous(m.Shown)
	if err != nil {
		link.close()
		return nil, "start", err
	}
	j := &served{
		token: c.Token, env: c.Env, unread: c.Unread, rendezvous: r, supervisor: newSupervisor(link),
		killing: make(chan struct{}), met: make(chan struct{}), clientGone: make(chan struct{}), overseen: make(chan struct{}),
		first: -1,
	}
	for _, command := range m.End {
		j.end = append(j.end, complete(command, c.Token, r.dir))
	}
	return j, "", nil
}

// Begin starts the client. What limits the jail is the service's business.
func (j *served) Begin(cmd *exec.Cmd) (clean bool, err error) {
	cmd.Args = complete(cmd.Args, j.token, j.rendezvous.dir)
	if err := cmd.Start(); err != nil {
		return true, err
	}
	j.client = cmd.Process
	go j.oversee() // ends with the client
	return true, nil
}

func (j *served) Meet(ctx context.Context) ([]*os.File, error) {
	defer close(j.met)
	defer func() { go j.supervisor.listen() }() // there may be a jail although its start has failed
	defer interrupt(ctx, j.supervisor.link.conn, acceptor{j.rendezvous.listener})()
	err := j.rendezvous.hand(ctx, j.supervisor.link.inside, j.clientGone)
	j.supervisor.link.closeInside() // else its end of the conversation would never be
	if err != nil {
		return nil, err
	}
	h, err := j.supervisor.meet()
	if err == nil {
		j.hold(h.pid, h.own)
	}
	return h.sockets, err
}

// An acceptor waits for connections, and has one deadline.
type acceptor struct{ listener *net.UnixListener }

func (a acceptor) SetReadDeadline(t time.Time) error { return a.listener.SetDeadline(t) }

// hold keeps hold of jailinit by the number that the kernel says it has here. own
// is the one that it has inside.
func (j *served) hold(pid, own int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if pid <= 0 || j.ended {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	if hungUp(j.supervisor.link.conn) {
		unix.Close(fd) // it has ended, so another process may have the number
		return
	}
	j.first, j.firstPID, j.isInit = fd, pid, own == 1
	j.supervisor.watch(pid)
}

// hungUp reports whether the other side is closed, though not yet read empty.
func hungUp(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	fds := []unix.PollFd{{}}
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, err = unix.Poll(fds, 0)
	})
	return err != nil || fds[0].Revents&unix.POLLHUP != 0
}

func (j *served) Terminate() { j.supervisor.terminate() }

func (j *served) Kill() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.supervisor.release()
	if j.isInit {
		_ = unix.PidfdSendSignal(j.first, unix.SIGKILL, nil, 0)
	}
	close(j.killing)
}

// oversee ends the jail through its service when it is killed and does not
// end by itself, and the client when that does not end after the jail.
func (j *served) oversee() {
	defer close(j.overseen)
	select {
	case <-j.clientGone:
		return
	case <-j.supervisor.silent:
	case <-j.killing:
		inside := j.supervisor.hasMet()
		if !inside {
			_ = j.client.Kill() // there is no connection left to end it through
		}
		if !inside || !within(ownEnd, j.supervisor.silent, j.clientGone) {
			// Whether it worked is seen when all is over.
			_ = run(context.Background(), j.end, j.env)
		}
	}
	for !within(clientEnd, j.clientGone, nil) {
		// It may be busy with output that has not been read yet.
		if !j.unread() {
			_ = j.client.Kill()
			return
		}
	}
}

// End waits until nothing inside is alive, with the service's help.
func (j *served) End() (sealed bool, err error) {
	close(j.clientGone)
	<-j.met // what is inside is known by then
	<-j.overseen
	first := j.letGo()
	j.supervisor.release() // the client may have died alone
	gone := j.goneIn(ownEnd, first)
	err = run(context.Background(), j.end, j.env)
	if !gone && first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0)
	}
	gone = gone || j.goneIn(forcedEnd, first)
	if first >= 0 {
		unix.Close(first)
	}
	within(ownEnd, j.supervisor.silent, nil)
	if gone {
		return false, nil
	}
	return false, errors.Join(fmt.Errorf("processes of jail %s are alive", j.token), err)
}

// letGo returns the descriptor of jailinit; no signal is sent by it any more.
func (j *served) letGo() (first int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first = j.first
	j.first, j.isInit, j.ended = -1, false, true
	return first
}

// goneIn reports whether jailinit ends in time: its process, or, where that
// cannot be seen, all that hold its end of the conversation.
func (j *served) goneIn(d time.Duration, first int) bool {
	if first >= 0 {
		return wait(first, d)
	}
	return within(d, j.supervisor.silent, nil)
}

// Report guesses by the client, which may have lost sight of a jail that was
// stopped.
func (j *served) Report(child *os.ProcessState, stopped bool) Report {
	r := guess(child)
	if stopped {
		r = Report{Code: 128 + int(syscall.SIGKILL)}.withSignal()
	}
	return j.supervisor.report(r)
}

func (j *served) Processes() (top, first int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.firstPID, j.firstPID
}

func (j *served) Remove() error {
	j.supervisor.link.close()
	return j.rendezvous.close()
}
