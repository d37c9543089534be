package jailinit

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// The last argument of a process that answers requests: all of them, or, where
// it stands outside the walls that the agent has around it, those to connect.
const (
	attendWord  = "attend"
	connectWord = "connect"
)

// Descriptors that the connector finds open.
const (
	requestFD = 3
	readyFD   = 4
	// configFD stays what it is for the first program.
)

func requestPair() (outer, inner int, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	return pair[0], pair[1], err
}

// startConnector leaves a process that answers the requests of the socket, and
// returns when no process inside can look into it any more.
//
// It is the agent's sibling, not its parent: the agent finds no child that it
// did not start, no process stands between the agent's end and its report, and
// killing the connector ends no more than the answers. Only where this process
// supervises is the connector its child.
func startConnector(requests int, c Config) error {
	self := []string{Path, Mark, attendWord}
	if c.needsSecond() {
		self[2] = connectWord
	}
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_PARENT}
	if c.Supervise || met {
		self[1] = os.Args[1] // where a jail's processes are searched for by its token
		attr.Cloneflags = 0
	}
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(null)
	var ready [2]int
	if err := syscall.Pipe2(ready[:], syscall.O_CLOEXEC); err != nil {
		return err
	}
	defer syscall.Close(ready[0])
	// With the agent's own streams it would keep them open.
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(requests), uintptr(ready[1]), uintptr(configFD)}
	_, err = syscall.ForkExec("/proc/self/exe", self, &syscall.ProcAttr{
		Env: []string{"GOMAXPROCS=1"}, Files: files, Sys: attr, // a second processor would cost memory only
	})
	syscall.Close(ready[1])
	syscall.Close(requests)
	if err != nil {
		return err
	}
	if n, err := syscall.Read(ready[0], make([]byte, 1)); n != 1 {
		return errors.Join(errors.New("it ended at once"), err)
	}
	return nil
}

// attend answers requests until the runner closes the socket, and ends.
func attend() {
	defer syscall.Exit(0) // os.Exit would sleep a second under the race detector
	// The agent is the same user. It may end this process, but not look into
	// it, nor take its descriptors.
	if err := prctl(syscall.PR_SET_DUMPABLE, 0, 0); err != nil {
		return
	}
	// They are meant for what the agent started. Ignored signals would be
	// ignored by a terminal's programs too, so they go to a channel that is not read.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := closeAtExec(); err != nil {
		return
	}
	a := &connector{socket: requestFD}
	if os.Args[2] == attendWord {
		c, err := readConfig()
		if err != nil {
			return
		}
		a.agent = &Config{Env: c.Env, Dir: c.Dir}
	}
	if _, err := syscall.Write(readyFD, []byte{0}); err != nil {
		return
	}
	syscall.Close(readyFD)
	for a.next() {
	}
}

// A pages is a part of this process's memory.
type pages struct{ begin, end uintptr }

// drop gives back what is there of a file, megabytes in a large program, of
// which the loop needs little again; the kernel has it.
func (p pages) drop() {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, p.begin, p.end-p.begin, syscall.MADV_DONTNEED)
}

// filePages lists the parts that show files and cannot be written. What could
// not be read from the file again, because it was changed in memory, is not
// among them.
func filePages() (found []pages) {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return nil
	}
	var begin, end uint64
	droppable := false
	for _, line := range lines(maps) {
		f := fields(line)
		switch {
		case len(f) >= 5 && len(f[1]) == 4: // "400000-401000 r-xp 00000000 fe:00 1234 /path"
			from, to, _ := cut(f[0], "-")
			begin, _ = strconv.ParseUint(from, 16, 64)
			end, _ = strconv.ParseUint(to, 16, 64)
			droppable = len(f) == 6 && f[1][1] == '-' && f[5][0] == '/' && begin < end
		case droppable && f[0] == "Anonymous:" && f[1] == "0":
			found = append(found, pages{uintptr(begin), uintptr(end)})
		}
	}
	return found
}

// A connector is one loop over one poll: a slow connect holds up no other
// request, and no goroutine or poller costs memory.
type connector struct {
	socket  int
	agent   *Config // whose environment and directory a terminal has; nil: there can be none
	waiting []connecting
	shells  []shell
	idle    bool    // its memory is given back
	files   []pages // that are given back; nil until that is done first
}

// busyTime is how long the connector keeps memory that it may soon need again. To
// find it takes a third of the time of its start, which many agents do not live to use.
const busyTime = time.Second

type connecting struct {
	id uint64
	fd int
}

// next handles what happens next, and reports whether there can be more.
func (a *connector) next() bool {
	fds := []pollFD{{fd: int32(a.socket), events: pollIn}}
	for _, c := range a.waiting {
		fds = append(fds, pollFD{fd: int32(c.fd), events: pollOut})
	}
	for _, s := range a.shells {
		fds = append(fds, pollFD{fd: int32(s.process), events: pollIn}, pollFD{fd: int32(s.status)})
	}
	limit := busyTime
	if a.idle || len(a.waiting) > 0 {
		limit = 0
	}
	switch n, err := poll(fds, limit); {
	case err != nil:
		return err == syscall.EINTR
	case n == 0:
		a.rest()
		return true
	}
	a.idle = false
	connecting, shells := fds[1:1+len(a.waiting)], fds[1+len(a.waiting):]
	a.look(shells)
	return a.connected(connecting) && (fds[0].revents == 0 || a.request())
}

// rest gives back what there may be no use for during a long time.
func (a *connector) rest() {
	if a.files == nil {
		a.files = filePages()
	}
	for _, p := range a.files {
		p.drop()
	}
	a.idle = true
}

// connected answers for the sockets with which something has happened.
func (a *connector) connected(fds []pollFD) bool {
	still := a.waiting[:0]
	for i, c := range a.waiting {
		if fds[i].revents == 0 {
			still = append(still, c)
			continue
		}
		errno, err := syscall.GetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_ERROR)
		if err == nil && errno != 0 {
			err = syscall.Errno(errno)
		}
		if !a.answer(c.id, c.fd, err) {
			return false
		}
	}
	a.waiting = still
	return true
}

func (a *connector) request() bool {
	b, oob := make([]byte, MaxMessage), make([]byte, syscall.CmsgSpace(2*4))
	n, oobn, _, _, err := syscall.Recvmsg(a.socket, b, oob, syscall.MSG_CMSG_CLOEXEC)
	if n <= 0 {
		return err == syscall.EINTR || err == syscall.EAGAIN
	}
	files := received(oob[:oobn])
	r, err := decodeRequest(b[:n])
	if err == nil && r.Verb == VerbTerminal {
		return a.terminal(r, files)
	}
	closeAll(files)
	if err != nil {
		return false
	}
	switch r.Verb {
	case VerbDial:
		return a.dial(r)
	case VerbCancel:
		return a.cancel(r.ID)
	default:
		return a.answer(r.ID, -1, syscall.ENOSYS)
	}
}

// received are the descriptors that came with a message.
func received(oob []byte) (files []int) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

func closeAll(files []int) {
	for _, fd := range files {
		syscall.Close(fd)
	}
}

func (a *connector) cancel(id uint64) bool {
	for i, c := range a.waiting {
		if c.id == id {
			a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
			return a.answer(c.id, c.fd, syscall.ECANCELED)
		}
	}
	return true // it was answered before
}

// answer sends the descriptor, or why there is none, and closes it.
func (a *connector) answer(id uint64, fd int, err error) bool {
	message, rights := Answer{ID: id}, []byte(nil)
	if err == nil {
		rights = syscall.UnixRights(fd)
	} else if n, ok := err.(syscall.Errno); ok {
		message.Errno = int(n)
	} else {
		message.Errno = int(syscall.EINVAL)
	}
	err = syscall.Sendmsg(a.socket, message.encode(), rights, nil, syscall.MSG_NOSIGNAL)
	if fd >= 0 {
		syscall.Close(fd)
	}
	return err == nil
}
