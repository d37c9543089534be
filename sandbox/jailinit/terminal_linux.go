package jailinit

import (
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// maxShells is how many terminals are open at once.
const maxShells = 64

// A shell is what runs in a terminal, and leads the session there.
type shell struct {
	pid     int
	process int // its descriptor: to be told of its end
	status  int // takes its end, and shows when the reader has gone
}

// terminal starts a program in a terminal of its own, behind the same walls as
// the agent: this process stands behind them.
func (a *connector) terminal(r Request, files []int) bool {
	defer func() { closeAll(files) }()
	if len(files) != 2 || len(r.Args) != 2 {
		return a.answer(r.ID, -1, syscall.EINVAL)
	}
	if a.agent == nil {
		return a.answer(r.ID, -1, syscall.ENOSYS)
	}
	if len(a.shells) >= maxShells {
		return a.answer(r.ID, -1, syscall.EAGAIN)
	}
	c, err := readConfigOf(files[0])
	if err != nil {
		return a.answer(r.ID, -1, syscall.EINVAL)
	}
	c.Env, c.Dir = overlaid(a.agent.Env, c.Env), a.agent.Dir
	master, slave, err := openTerminal(r.Args)
	if err != nil {
		return a.answer(r.ID, -1, err)
	}
	s, err := startShell(c, slave)
	syscall.Close(slave)
	if err != nil {
		syscall.Close(master)
		return a.answer(r.ID, -1, err)
	}
	s.status, files = files[1], files[:1]
	a.shells = append(a.shells, s)
	return a.answer(r.ID, master, nil)
}

// overlaid returns the variables of env with those of over in their place.
func overlaid(env, over []string) []string {
	all := slices.Clone(over)
	for _, kv := range env {
		name, _, _ := cut(kv, "=")
		if !slices.ContainsFunc(over, func(o string) bool { return hasPrefix(o, name+"=") }) {
			all = append(all, kv)
		}
	}
	return all
}

// openTerminal opens both sides of a new terminal. The outer one never blocks.
func openTerminal(size []string) (master, slave int, err error) {
	rows, errRows := strconv.ParseUint(size[0], 10, 16)
	columns, errColumns := strconv.ParseUint(size[1], 10, 16)
	if errRows != nil || errColumns != nil {
		return -1, -1, syscall.EINVAL
	}
	master, err = syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	locked := int32(0)
	window := struct{ rows, columns, x, y uint16 }{rows: uint16(rows), columns: uint16(columns)}
	var modes syscall.Termios
	for _, do := range []struct {
		request  uintptr
		argument unsafe.Pointer
	}{
		{ioctlUnlock, unsafe.Pointer(&locked)}, {syscall.TIOCSWINSZ, unsafe.Pointer(&window)}, {syscall.TCGETS, unsafe.Pointer(&modes)},
	} {
		if err := ioctl(master, do.request, do.argument); err != nil {
			syscall.Close(master)
			return -1, -1, err
		}
	}
	modes.Iflag |= inputUTF8 // or the erase key leaves halves of characters
	_ = ioctl(master, syscall.TCSETS, unsafe.Pointer(&modes))
	// By descriptor: names below /dev may be others than those of this instance.
	peer, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(master), ioctlPeer, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC)
	if errno != 0 {
		syscall.Close(master)
		return -1, -1, errno
	}
	return master, int(peer), nil
}

// startShell starts the program as the leader of a session on the terminal.
func startShell(c Config, terminal int) (shell, error) {
	fd := uintptr(terminal)
	s := shell{process: -1}
	attr := &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: []uintptr{fd, fd, fd},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0, PidFD: &s.process},
	}
	if token, _ := cutPrefix(os.Args[1], Mark); token != "" {
		attr.Env = append(slices.Clone(attr.Env), EnvMark+token) // by which it is found without a jail
	}
	err := error(syscall.ENOENT)
	for _, p := range candidates(c.Args[0], c.Env) {
		pid, e := syscall.ForkExec(p, c.Args, attr)
		if e == nil && s.process < 0 { // a kernel before 5.2
			s.process, e = openProcess(pid)
		}
		if e == nil {
			s.pid = pid
			return s, nil
		}
		if e != syscall.ENOENT && e != syscall.ENOTDIR {
			err = e
		}
	}
	return s, err
}

// look reports the programs that have ended, and ends those whose terminal has no
// holder any more. The kernel hangs up on what they leave in it.
func (a *connector) look(fds []pollFD) {
	still := a.shells[:0]
	for i, s := range a.shells {
		process, status := fds[2*i].revents, fds[2*i+1].revents
		switch {
		case process != 0:
			s.end()
			continue
		case status != 0:
			_ = syscall.Kill(-s.pid, syscall.SIGKILL)
			syscall.Close(s.status)
			s.status = -1
		}
		still = append(still, s)
	}
	a.shells = still
}

// end cleans up after a program that has ended, and reports how it did.
func (s shell) end() {
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(s.pid, &ws, 0, nil)
	for err == syscall.EINTR {
		_, err = syscall.Wait4(s.pid, &ws, 0, nil)
	}
	syscall.Close(s.process)
	if s.status < 0 {
		return
	}
	end := []byte{byte(ws.ExitStatus()), 0}
	if ws.Signaled() {
		end = []byte{byte(128 + int(ws.Signal())), byte(ws.Signal())}
	}
	if err == nil {
		_, _ = syscall.Write(s.status, end) // there is room, if the reader is still there
	}
	syscall.Close(s.status)
}
