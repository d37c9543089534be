package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"golang.org/x/sys/unix"
)

// How long what should happen by itself may take before it is forced. Each is
// milliseconds on an idle machine.
const (
	ownEnd    = 2 * time.Second // jailinit kills everything and ends
	clientEnd = 5 * time.Second // the client sees that the jail has ended, and ends
	forcedEnd = 3 * time.Second // the kernel kills
)

// A service is a jail that a service of the host made: neither it nor what is
// in it are our children, and only the client is.
type service struct {
	rendezvous *rendezvous
	end        [][]string // Command.End, completed
	killing    chan struct{}
	clientGone chan struct{}
	overseen   chan struct{} // closed when oversee has returned
}

func newService(c *Command, token string) (*service, error) {
	if !c.Control || c.Status {
		return nil, errors.New("a rendezvous goes with Control and without Status")
	}
	m, err := newRendezvous(c)
	if err != nil {
		return nil, err
	}
	return &service{
		rendezvous: m, end: complete(c.End, token, m.dir),
		killing: make(chan struct{}), clientGone: make(chan struct{}), overseen: make(chan struct{}),
	}, nil
}

// An account is what the supervisor inside has said.
type account struct {
	exited  bool
	code    int
	signal  syscall.Signal
	reached []Feature // limits that its control group ran into
}

func (a *account) note(said []string) {
	switch {
	case said[0] == "exited" && len(said) == 3:
		a.exited, a.code, a.signal = true, atoi(said[1])&0xff, syscall.Signal(atoi(said[2])&0x7f)
	case said[0] == "reached" && len(said) == 2:
		if f := Feature(said[1]); f == FeatureMemory || f == FeaturePIDs {
			a.reached = append(a.reached, f)
		}
	}
}

// attend listens to a supervisor until its end, or ours.
func (j *jail) attend() {
	defer close(j.silent)
	word := make([]byte, 256)
	for {
		n, err := j.control.Read(word)
		if os.IsTimeout(err) {
			// An interrupt of the start that came too late.
			j.control.SetReadDeadline(time.Time{})
			continue
		}
		if err != nil || n == 0 {
			j.look() // it may have been ended by a limit itself
			return
		}
		j.mu.Lock()
		j.account.note(strings.Split(string(word[:n]), "\x00"))
		told := j.account.exited
		j.mu.Unlock()
		if told {
			j.look()
			_ = j.control.CloseWrite() // it waits for this, so that its groups can be read
		}
	}
}

// look notes, once, which limits were reached: the service removes the groups
// with the jail.
func (j *jail) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.groups == nil {
		return
	}
	for _, r := range j.groups.Reached() {
		if f := Feature(r); !slices.Contains(j.account.reached, f) {
			j.account.reached = append(j.account.reached, f)
		}
	}
	j.groups = nil
}

// setSupervisor keeps hold of jailinit in a jail of a service, by the number
// that the kernel says it has here. own is the one that it has inside.
func (j *jail) setSupervisor(pid, own int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.service == nil || pid <= 0 || j.ended {
		return // it may be out of sight, where we are in a container ourselves
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	if hungUp(j.control) {
		unix.Close(fd) // it has ended, so another process may have the number
		return
	}
	j.first, j.firstPID, j.firstIsInit = fd, pid, own == 1
	j.groups = cgroup.Follow(pid)
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

// oversee ends the jail through its service when it is killed and does not
// end by itself, and the client when that does not end after the jail.
func (j *jail) oversee(ctx context.Context, pipes *plumbing) {
	s := j.service
	defer close(s.overseen)
	select {
	case <-s.clientGone:
		return
	case <-j.silent:
	case <-s.killing:
		inside := j.isSupervised()
		if !inside {
			_ = j.main.Kill() // there is no connection left to end it through
		}
		if !inside || !within(ownEnd, j.silent, s.clientGone) {
			// Whether it worked is seen when all is over.
			_ = runEnd(context.WithoutCancel(ctx), s.end, j.command.Env)
		}
	}
	for !within(clientEnd, s.clientGone, nil) {
		// It may be busy with output that has not been read yet.
		if !pipes.unread() {
			_ = j.main.Kill()
			return
		}
	}
}

// within reports whether one of two channels is closed in time.
func within(d time.Duration, a, b <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a:
	case <-b:
	case <-t.C:
		return false
	}
	return true
}

// endService waits until nothing inside is alive, with the service's help. The
// client has ended.
func (j *jail) endService(ctx context.Context, first int) error {
	_ = j.control.CloseWrite() // the client may have died alone
	gone := j.goneIn(ownEnd, first)
	err := runEnd(context.WithoutCancel(ctx), j.service.end, j.command.Env)
	if !gone && first >= 0 {
		_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0)
	}
	gone = gone || j.goneIn(forcedEnd, first)
	alive := 0
	if j.command.Sweep {
		alive = killMarked(j.token)
	}
	if !gone || alive > 0 {
		return errors.Join(fmt.Errorf("processes of jail %s are alive", j.token), err)
	}
	return nil
}

// goneIn reports whether jailinit ends in time: its process, or, where that
// cannot be seen, all that hold its end of the control socket.
func (j *jail) goneIn(d time.Duration, first int) bool {
	if first >= 0 {
		return wait(first, d)
	}
	return within(d, j.silent, nil)
}

// surround makes what has to be there before the mechanism starts. The limits
// of a service's jail are its own business.
func (j *jail) surround(l Limits) (step string, err error) {
	if j.command.Rendezvous {
		j.group = &cgroup.Group{}
		j.service, err = newService(j.command, j.token)
		return "start", err
	}
	j.group, err = cgroup.New(j.token, groupLimits(l))
	return "limits", err
}

// remove undoes surround.
func (j *jail) remove() error {
	if j.service != nil {
		return j.service.rendezvous.close()
	}
	return j.group.Remove()
}

// hand gives jailinit its descriptors where the mechanism could not.
func (j *jail) hand(deadline time.Time, ends *ends) error {
	if j.service == nil {
		return nil
	}
	defer ends.closeInside() // else its end of the control socket would never be
	return j.service.rendezvous.hand(deadline, ends.inside[ControlFD-StatusFD:], j.service.clientGone)
}

// setDeadline bounds the start. An interrupt comes after it.
func (j *jail) setDeadline(t time.Time, ends *ends) {
	ends.status.SetReadDeadline(t)
	ends.control.SetReadDeadline(t)
	if j.service != nil {
		_ = j.service.rendezvous.listener.SetDeadline(t) // it has deadlines
	}
}

// meets records the jailinit that has connected.
func (j *jail) meets(h hello) {
	if !h.supervised {
		j.setAgent(h.agent)
		return
	}
	j.mu.Lock()
	j.supervised = true
	j.mu.Unlock()
	j.setSupervisor(h.agent, h.own)
}

// listens reports whether attend has something to wait for. A service's jail
// may be there although its start failed.
func (j *jail) listens() bool {
	return j.service != nil || j.isSupervised()
}

func (j *jail) isSupervised() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.supervised
}

// code returns how the agent ended: as the supervisor has said, or else as the
// mechanism's process lets guess.
func (j *jail) code(p *os.ProcessState, stopped bool) (code int, signal syscall.Signal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.account.exited {
		return j.account.code, j.account.signal
	}
	code = p.ExitCode()
	if ws, ok := p.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	if j.service != nil && stopped {
		code = 128 + int(syscall.SIGKILL) // the client may have lost sight of it
	}
	if code > 128 && code <= 128+64 {
		signal = syscall.Signal(code - 128)
	}
	return code, signal
}

// reached lists the limits that the supervisor has reported.
func (j *jail) reached() []Feature {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.account.reached
}

// unread reports whether output waits for a reader.
func (p *plumbing) unread() bool {
	return slices.ContainsFunc(p.outputs, func(o *output) bool { return pending(o.from) > 0 })
}

// pending returns how many bytes of a pipe wait to be read.
func pending(f *os.File) int {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if e := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); e != nil || err != nil {
		return 0
	}
	return n
}
