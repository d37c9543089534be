package sandboxtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt runs a probe and returns its outcome in one word: "ok", an error's
// name, or what was found.
func attempt(name string, args []string) string {
	probe, ok := probes[name]
	if !ok {
		return "no-such-probe"
	}
	out, err := probe(args)
	if err != nil {
		return errorName(err)
	}
	if out == "" {
		return "ok"
	}
	return out
}

func errorName(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		if e == 0 {
			return "ok"
		}
		return unix.ErrnoName(e)
	}
	return strings.ReplaceAll(err.Error(), " ", "-")
}

var probes = map[string]func([]string) (string, error){
	"read": read, "write": write, "open-write": openWrite, "reopen": reopen, "list": list, "env": getenv,
	"environment": environment, "contains": contains, "descriptor": descriptor, "descriptor-at": descriptorAt,
	"link": link, "rename": rename, "create-mode": createMode, "chmod": chmod, "chown": chown, "mknod": mknod,
	"processes": processes, "signal": signalProcess, "connect": connect,
	"datagram": datagram, "listen": listenInside, "syscall": rawSyscall, "interfaces": interfaces,
	"fork": forkMany, "memory": useMemory, "keep": keep, "many-files": manyFiles, "flood": flood, "fill": fill, "sparse": sparse, "cpu": useCPU, "files": openMany,
	"sleep": sleep, "limit": raiseLimit, "nnp": noNewPrivileges, "hostname": hostname, "terminal": terminal,
	"blocking": blocking, "execute": execute, "uid": uid, "groups": groups, "mounts": mounts, "queue": queue,
	"read-any": readAny, "wait": wait, "memory-execute": executeMemory, "trace-parent": traceParent,
	"child-memory": readChild, "child-descriptor": takeDescriptor, "unmask": unmask, "umount": unmount,
}

func read(a []string) (string, error) {
	b, err := os.ReadFile(a[0])
	if err == nil && len(b) == 0 {
		return "empty", nil
	}
	return "", err
}

const written = "written from inside"

func write(a []string) (string, error) {
	return "", os.WriteFile(a[0], []byte(written+"\n"), 0o666)
}

// openWrite opens only: what would be written to may be the kernel's.
func openWrite(a []string) (string, error) {
	f, err := os.OpenFile(a[0], os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	return "", err
}

func reopen(a []string) (string, error) {
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	return openWrite([]string{fmt.Sprintf("/proc/self/fd/%d", f.Fd())})
}

func list(a []string) (string, error) {
	entries, err := os.ReadDir(a[0])
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return "[" + strings.Join(names, ",") + "]", err
}

func getenv(a []string) (string, error) {
	if _, ok := os.LookupEnv(a[0]); !ok {
		return "unset", nil
	}
	return "", nil
}

func environment([]string) (string, error) {
	env := os.Environ()
	slices.Sort(env)
	return strings.Join(env, ","), nil
}

// contains looks for a text in files; what it cannot read, it does not find.
func contains(a []string) (string, error) {
	for _, pattern := range a[1:] {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		for _, f := range files {
			if strings.HasSuffix(filepath.Dir(f), "/"+strconv.Itoa(os.Getpid())) || strings.Contains(f, "/self/") {
				continue // the text is in our own arguments
			}
			if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), a[0]) {
				return "found", nil
			}
		}
	}
	return "absent", nil
}

func descriptor(a []string) (string, error) {
	fd, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	_, err = unix.Pread(fd, make([]byte, 8), 0)
	return "", err
}

func descriptorAt(a []string) (string, error) {
	fd, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	_, err = unix.Openat(fd, a[1], unix.O_RDONLY, 0)
	return "", err
}

func link(a []string) (string, error)   { return "", os.Link(a[0], a[1]) }
func rename(a []string) (string, error) { return "", os.Rename(a[0], a[1]) }

func createMode(a []string) (string, error) {
	mode, err := strconv.ParseUint(a[1], 8, 32)
	if err != nil {
		return "", err
	}
	_, err = unix.Open(a[0], unix.O_CREAT|unix.O_WRONLY, uint32(mode))
	return "", err
}

// chmod uses one of the system calls by name: each has to be refused.
func chmod(a []string) (string, error) {
	if err := os.WriteFile("program", nil, 0o755); err != nil {
		return "", err
	}
	switch a[0] {
	case "fchmod":
		f, err := os.Open("program")
		if err != nil {
			return "", err
		}
		return "", unix.Fchmod(int(f.Fd()), 0o4755)
	case "fchmodat2":
		err := unix.Fchmodat(unix.AT_FDCWD, "program", 0o4755, unix.AT_SYMLINK_NOFOLLOW)
		return "", err
	case "mknod":
		return "", unix.Mknodat(unix.AT_FDCWD, "program2", unix.S_IFREG|0o4755, 0)
	}
	return "", unix.Fchmodat(unix.AT_FDCWD, "program", 0o4755, 0)
}

func chown([]string) (string, error) {
	if err := os.WriteFile("program", nil, 0o755); err != nil {
		return "", err
	}
	return "", os.Chown("program", 0, 0)
}

func mknod([]string) (string, error) {
	return "", unix.Mknod("device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
}

func processes([]string) (string, error) {
	n := 0
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			n++
		}
	}
	if n > 3 {
		return "many", err
	}
	return "few", err
}

func signalProcess(a []string) (string, error) {
	pid, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	return "", syscall.Kill(pid, 0)
}

func queue(a []string) (string, error) {
	name, err := unix.BytePtrFromString(a[0])
	if err != nil {
		return "", err
	}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY, 0, 0, 0, 0)
	return "", errno
}

func connect(a []string) (string, error) {
	c, err := net.DialTimeout(a[0], a[1], 3*time.Second)
	if err == nil {
		c.Close()
	}
	return "", err
}

// datagram sends to an address from one end of a socket pair that was
// connected to its other end.
func datagram(a []string) (string, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return "", err
	}
	_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(fds[0]), uintptr(zeroFamily()), 2)
	return "", unix.Sendto(fds[0], []byte("x"), 0, &unix.SockaddrUnix{Name: a[0]})
}

func listenInside(a []string) (string, error) {
	l, err := net.Listen("tcp", a[0])
	if err != nil {
		return "", err
	}
	defer l.Close()
	fmt.Println("listening")
	return sleep(nil)
}

func interfaces([]string) (string, error) {
	all, err := net.Interfaces()
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return strings.Join(names, ","), err
}

func sleep([]string) (string, error) {
	time.Sleep(time.Hour)
	return "", nil
}

func noNewPrivileges([]string) (string, error) {
	n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return strconv.Itoa(n), err
}

func hostname([]string) (string, error) { return os.Hostname() }

func terminal([]string) (string, error) { return openWrite([]string{"/dev/tty"}) }

// blocking tells whether standard output is a blocking descriptor, as
// programs expect that write to it and look at no error.
func blocking([]string) (string, error) {
	flags, err := unix.FcntlInt(1, unix.F_GETFL, 0)
	if flags&unix.O_NONBLOCK != 0 {
		return "nonblocking", err
	}
	return "blocking", err
}

// execute starts a program and reports how it ended.
func execute(a []string) (string, error) {
	pid, err := syscall.ForkExec(a[0], a, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return "", err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return "", err
	}
	if status.Signaled() {
		return unix.SignalName(status.Signal()), nil
	}
	return "exit-" + strconv.Itoa(status.ExitStatus()), nil
}

func uid([]string) (string, error) {
	return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), nil
}

func groups([]string) (string, error) {
	g, err := os.Getgroups()
	return strconv.Itoa(len(g)), err
}

// mounts lists writable mounts of block devices and the like: everything
// that is neither read-only nor made for the jail.
func mounts([]string) (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	var writable []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) > 5 && !strings.HasPrefix(fields[5], "ro") {
			writable = append(writable, fields[4])
		}
	}
	slices.Sort(writable)
	return strings.Join(slices.Compact(writable), ","), err
}
