package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// secret is what must not be seen inside.
const secret = "the-host-s-secret-5b1f"

// A host is what the attackers are after.
type host struct {
	dir       string // holds secret.txt and the sockets
	home      string // of a user, with what users keep there
	fd        int    // an inheritable descriptor of secret.txt
	dirFD     int    // an inheritable descriptor of dir
	process   int    // a process with the secret in its arguments and environment
	shmKey    int
	queue     string
	shmFile   string
	abstract  string
	port4     string // host:port on the loopback
	port6     string
	stream    string // a unix stream socket
	datagram  string
	user      string // a user of the host
	workspace func(*testing.T) string
}

func newHost(t *testing.T) *host {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	h := &host{dir: dir, home: filepath.Join(dir, "home"), workspace: newWorkspace(dir), user: "daemon"}
	must(newHome(h.home))
	must(os.WriteFile(filepath.Join(dir, "secret.txt"), []byte(secret), 0o644))
	t.Setenv("API_SECRET", secret)
	h.openInheritable(t)
	h.startProcess(t)
	h.listen(t)
	h.shareMemory(t)
	return h
}

// newWorkspace makes workspaces with a link to what is outside.
func newWorkspace(dir string) func(*testing.T) string {
	return func(t *testing.T) string {
		ws := t.TempDir()
		if err := os.Symlink(filepath.Join(dir, "secret.txt"), filepath.Join(ws, "link")); err != nil {
			t.Fatal(err)
		}
		return ws
	}
}

// openInheritable does what a careless program does: it leaves descriptors
// open across an exec.
func (h *host) openInheritable(t *testing.T) {
	for _, o := range []struct {
		path string
		flag int
		to   *int
	}{
		{filepath.Join(h.dir, "secret.txt"), unix.O_RDONLY, &h.fd},
		{h.dir, unix.O_RDONLY | unix.O_DIRECTORY, &h.dirFD},
	} {
		fd, err := unix.Open(o.path, o.flag|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 200)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		*o.to = high
		t.Cleanup(func() { unix.Close(high) })
	}
}

func (h *host) startProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, probeWord, "sleep", secret)
	cmd.Env = append(os.Environ(), "API_SECRET="+secret)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.process = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func (h *host) listen(t *testing.T) {
	h.stream, h.datagram = filepath.Join(h.dir, "s"), filepath.Join(h.dir, "d")
	h.abstract = "@penstock-test-" + strconv.Itoa(os.Getpid())
	for _, l := range []struct {
		network, address string
		to               *string
	}{
		{"tcp4", "127.0.0.1:0", &h.port4}, {"tcp6", "[::1]:0", &h.port6},
		{"unix", h.stream, nil}, {"unix", h.abstract, nil},
	} {
		ln, err := net.Listen(l.network, l.address)
		if err != nil {
			if l.network == "tcp6" {
				continue // a host without IPv6
			}
			t.Fatal(err)
		}
		if l.to != nil {
			*l.to = ln.Addr().String()
		}
		t.Cleanup(func() { ln.Close() })
	}
	c, err := net.ListenPacket("unixgram", h.datagram)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}

func (h *host) shareMemory(t *testing.T) {
	removeShared()
	h.shmKey = sharedKey + os.Getpid()
	id, err := unix.SysvShmGet(h.shmKey, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	h.shmFile = fmt.Sprintf("%s%d", sharedFile, os.Getpid())
	if err := os.WriteFile(h.shmFile, []byte(secret), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(h.shmFile) })
	h.queue = filepath.Base(h.shmFile)
	name, err := unix.BytePtrFromString(h.queue)
	if err != nil {
		t.Fatal(err)
	}
	// A small one: a user has 800 KiB for all its queues, and a test that was
	// killed leaves its own.
	attr := struct{ flags, maxmsg, msgsize, curmsgs, _, _, _, _ int64 }{maxmsg: 1, msgsize: 8}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o666, uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() {
		unix.Close(int(fd))
		_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	})
}

// What the host shares ends with the number of the test's process.
const (
	sharedFile = "/dev/shm/penstock-test-"
	sharedKey  = 0x50000000
)

// removeShared removes what tests that were killed have left: nothing of it
// ends with a process. Its errors mean that it belongs to another user.
func removeShared() {
	files, _ := filepath.Glob(sharedFile + "*")
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimPrefix(f, sharedFile))
		if err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		if name, err := unix.BytePtrFromString(filepath.Base(f)); err == nil {
			_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
		}
		if id, err := unix.SysvShmGet(sharedKey+pid, 0, 0); err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		_ = os.Remove(f)
	}
}
