package jailinit

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// init takes over where this process is the first program of a jail, the one that
// mounts its workspace or answers requests in it, or the one that ends a jail that
// was not finished. No caller is needed: a program that forgot to call would start
// anew inside, with all that it does to the host.
func init() {
	switch {
	case len(os.Args) < 2 || (os.Args[0] != Path && os.Args[0] != OverlayName && os.Args[0] != ReaperName) || setID():
	case os.Args[0] == OverlayName:
		mountAndExecute()
	case os.Args[0] == ReaperName:
		reapJails(os.Args[1])
		syscall.Exit(0)
	case len(os.Args) == 2 && hasPrefix(os.Args[1], Mark):
		first()
	case len(os.Args) == 2 && os.Args[1] == secondWord:
		second()
	case len(os.Args) == 3 && os.Args[1] == Look:
		look(os.Args[2])
	case len(os.Args) == 3 && (os.Args[2] == attendWord || os.Args[2] == connectWord):
		attend()
	}
}

// setID reports whether this process has more rights than the one that started it.
// That one chose its name, argument and descriptors, so it does not execute for it.
func setID() bool { return os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() }

// first never returns. The name and the mark are no accident, so where the
// mechanism has lost the descriptors it ends too: what comes after it is the
// program of the host.
func first() {
	// Landlock domains belong to threads, and the one that executes counts.
	runtime.LockOSThread()
	if err := connect(); err != nil {
		os.Stderr.WriteString(Path + ": " + err.Error() + "\n")
		syscall.Exit(127) // os.Exit would sleep a second under the race detector
	}
	err := start()
	report(err)
	syscall.Exit(127)
}

// isControl reports whether fd is what a runner passes: a unix socket that
// keeps messages apart. Nothing else opens one in a process that just began.
func isControl(fd int) bool {
	domain, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_DOMAIN)
	if err != nil || domain != syscall.AF_UNIX {
		return false
	}
	kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	return err == nil && kind == syscall.SOCK_SEQPACKET
}

// A stepError tells the runner which step failed.
type stepError struct {
	step   string
	detail string
	err    error
}

func (e *stepError) Error() string { return e.step + ": " + e.detail + ": " + e.err.Error() }

func start() error {
	c, err := readConfig()
	if err != nil {
		return &stepError{"set up", "configuration", err}
	}
	switch {
	case c.nested:
		return build(c)
	case len(c.View) > 0:
		return outer(c)
	}
	// A session of its own: the agent has no terminal, and a signal to its
	// group reaches what it started and nothing else.
	if _, err := syscall.Setsid(); err != nil && err != syscall.EPERM {
		return &stepError{"set up", "session", err}
	}
	sockets, err := listen(c.Listen)
	if err != nil {
		return err
	}
	attended := -1
	if c.Dial {
		outer, inner, err := requestPair()
		if err != nil {
			return &stepError{"set up", "requests", err}
		}
		sockets, attended = append(sockets, outer), inner
	}
	if err := announce(sockets); err != nil {
		return &stepError{"set up", "announce", err}
	}
	if c.Covered { // before restrict, which names files that it shows
		if err := awaitCover(); err != nil {
			return &stepError{"set up", "cover", err}
		}
	}
	if !c.needsSecond() {
		if err := restrict(c); err != nil {
			return err
		}
	}
	if c.Dial {
		if err := startConnector(attended, c); err != nil {
			return &stepError{"set up", "connector", err}
		}
	}
	if c.needsSecond() {
		return supervise(c)
	}
	if err := os.Chdir(c.Dir); err != nil {
		return &stepError{"directory", c.Dir, underlying(err)}
	}
	if c.Supervise || met {
		return supervise(c)
	}
	return execute(c)
}

func readConfig() (Config, error) { return readConfigOf(configFD) }

func readConfigOf(fd int) (Config, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return Config{}, err
	}
	b := make([]byte, st.Size)
	for n := 0; n < len(b); {
		m, err := syscall.Pread(fd, b[n:], int64(n))
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

// announce sends the listeners out. The kernel adds the number that this
// process has outside.
func announce(sockets []int) error {
	var oob []byte
	if len(sockets) > 0 {
		oob = syscall.UnixRights(sockets...)
	}
	if err := syscall.Sendmsg(controlFD, []byte("ready"), oob, nil, 0); err != nil {
		return err
	}
	for _, fd := range sockets {
		if err := syscall.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// awaitCover returns when the runner says that what the agent must not see is
// covered. Whatever else comes, the end of the socket above all, means that it
// is not.
func awaitCover() error {
	b := make([]byte, 2*len(CoveredWord))
	n, err := syscall.Read(controlFD, b)
	if err == nil && string(b[:n]) != CoveredWord {
		err = errNotCovered
	}
	return err
}

var errNotCovered = errors.New("the runner did not say that it has covered anything")

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
		{"core", syscall.RLIMIT_CORE, 0},
		{"open files", syscall.RLIMIT_NOFILE, c.OpenFiles},
		{"file size", syscall.RLIMIT_FSIZE, c.FileSize},
		{"processes", rlimitNproc, c.Processes},
		{"memory", syscall.RLIMIT_DATA, c.Data},
	} {
		if l.resource != syscall.RLIMIT_CORE && l.value == 0 {
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
	if len(c.Filter) > 0 {
		if err := filterCalls(c.Filter); err != nil {
			return &stepError{"set up", "filter of system calls", err}
		}
	}
	return nil
}

func closeAtExec() error {
	_, _, errno := syscall.Syscall(sysCloseRange, 3, ^uintptr(0), closeRangeCloexec)
	if errno == 0 {
		return nil
	}
	if errno != syscall.ENOSYS && errno != syscall.EINVAL {
		return errno
	}
	// Kernels before 5.11.
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
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

// report tells the runner why there will be no agent. If the runner no longer
// listens, it no longer needs to know.
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
	message := "error\x00" + step + "\x00" + strconv.Itoa(number) + "\x00" + detail
	_ = syscall.Sendmsg(controlFD, []byte(message), nil, nil, syscall.MSG_NOSIGNAL)
}

func underlying(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
