package jailinit

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main returns at once, unless this process is the first program of a jail:
// then it never returns. Call it before anything else.
func Main() {
	if len(os.Args) != 2 || os.Args[0] != Path || !strings.HasPrefix(os.Args[1], Mark) {
		called.Store(true)
		return
	}
	// Landlock domains belong to threads, and the one that executes counts.
	runtime.LockOSThread()
	err := start()
	report(err)
	os.Exit(127)
}

// A stepError tells the runner which step failed.
type stepError struct {
	step   string
	detail string
	err    error
}

func (e *stepError) Error() string { return fmt.Sprintf("%s: %s: %v", e.step, e.detail, e.err) }

func start() error {
	c, err := readConfig()
	if err != nil {
		return &stepError{"set up", "configuration", err}
	}
	// A session of its own: the agent has no terminal, and a signal to its
	// group reaches what it started but nobody else.
	if _, err := unix.Setsid(); err != nil && err != unix.EPERM {
		return &stepError{"set up", "session", err}
	}
	sockets, err := listen(c.Listen)
	if err != nil {
		return err
	}
	if err := announce(sockets); err != nil {
		return &stepError{"set up", "announce", err}
	}
	if err := restrict(c); err != nil {
		return err
	}
	if err := os.Chdir(c.Dir); err != nil {
		return &stepError{"directory", c.Dir, underlying(err)}
	}
	if c.Supervise {
		return supervise(c)
	}
	return execute(c)
}

func readConfig() (Config, error) {
	var st unix.Stat_t
	if err := unix.Fstat(configFD, &st); err != nil {
		return Config{}, err
	}
	b := make([]byte, st.Size)
	for n := 0; n < len(b); {
		m, err := unix.Pread(configFD, b[n:], int64(n))
		if err != nil {
			return Config{}, err
		}
		if m == 0 {
			return Config{}, errConfig
		}
		n += m
	}
	return decode(b)
}

// listen opens the sockets with bare calls: package net would start a poller
// in a process that lives for two milliseconds.
func listen(addresses []string) ([]int, error) {
	var sockets []int
	for _, a := range addresses {
		ap, err := netip.ParseAddrPort(a)
		if err != nil {
			return nil, &stepError{"listen", a, err}
		}
		fd, err := listenOne(ap)
		if err != nil {
			return nil, &stepError{"listen", a, err}
		}
		sockets = append(sockets, fd)
	}
	return sockets, nil
}

func listenOne(ap netip.AddrPort) (int, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()})
	if ap.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, sa); err != nil {
		return -1, err
	}
	return fd, unix.Listen(fd, unix.SOMAXCONN)
}

// announce sends the listeners out. The kernel adds the number that this
// process has outside.
func announce(sockets []int) error {
	var oob []byte
	if len(sockets) > 0 {
		oob = unix.UnixRights(sockets...)
	}
	if err := unix.Sendmsg(controlFD, []byte("ready"), oob, nil, 0); err != nil {
		return err
	}
	for _, fd := range sockets {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// restrict applies what only lowers what this process may do.
func restrict(c Config) error {
	// Whatever the mechanism, or a careless parent, left open ends at the
	// exec. The control socket too: its end is how the runner learns of it.
	if err := closeAtExec(); err != nil {
		return &stepError{"set up", "close descriptors", err}
	}
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"core", unix.RLIMIT_CORE, 0},
		{"open files", unix.RLIMIT_NOFILE, c.OpenFiles},
		{"file size", unix.RLIMIT_FSIZE, c.FileSize},
		{"processes", unix.RLIMIT_NPROC, c.Processes},
	} {
		if l.resource != unix.RLIMIT_CORE && l.value == 0 {
			continue
		}
		if err := lower(l.resource, l.value); err != nil {
			return &stepError{"set up", "limit of " + l.name, err}
		}
	}
	if len(c.Writable) > 0 {
		if err := landlock(c.Writable, c.Scoped); err != nil {
			return &stepError{"set up", "landlock", err}
		}
	}
	return nil
}

func closeAtExec() error {
	err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err != unix.ENOSYS && err != unix.EINVAL {
		return err
	}
	// Kernels before 5.11.
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func lower(resource int, value uint64) error {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(resource, &old); err != nil {
		return err
	}
	value = min(value, old.Max)
	// Through package syscall: it remembers the limit of open files that the
	// runtime raised, and would put that back at the exec.
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}

// report tells the runner why there will be no agent. Nobody may be
// listening any more, and then nobody needs to know.
func report(err error) {
	step, detail, number := "set up", "", 0
	if e, ok := err.(*stepError); ok {
		step, detail = e.step, e.detail
		if n, ok := e.err.(syscall.Errno); ok {
			number = int(n)
		} else if e.err != nil {
			detail += ": " + e.err.Error()
		}
	}
	message := fmt.Sprintf("error\x00%s\x00%d\x00%s", step, number, detail)
	_ = unix.Sendmsg(controlFD, []byte(message), nil, nil, unix.MSG_NOSIGNAL)
}

func underlying(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
