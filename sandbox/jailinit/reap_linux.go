package jailinit

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// ReaperName is the name under which this program ends the jails that die with
// their starter too early. Its argument is the starter as a jail's token names
// it: namespace, process, and when that began.
//
// The kernel ends bubblewrap when its starter dies, and the jail when
// bubblewrap dies. But until bubblewrap has released the first process of the
// new namespaces, that process waits for a message, and nothing ties it to any
// other process: killed then, bubblewrap leaves it waiting for ever.
//
// A starter whose jails have all ended has left none, see [StartReaper]: then it looks
// for none, which would take longer the more processes the host has.
const ReaperName = "penstock-reaper"

// jailsFD is where the reaper finds what StartReaper was given.
const jailsFD = 3

// A starter's last jails appear, if they do, before the reaper has looked
// calmLooks times and found nothing.
const (
	calmLooks = 4
	lookPause = 25 * time.Millisecond
)

// reapJails waits for the end of the starter, then ends what it left, and returns.
func reapJails(starter string) {
	// Whatever the starter inherited would stay open with this process.
	_, _, _ = syscall.Syscall(sysCloseRange, jailsFD+1, ^uintptr(0), 0)
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) // meant for the starter
	parts := split(starter, "-")
	if len(parts) != 3 {
		return
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return
	}
	if fd, err := openProcess(pid); err == nil {
		if began(pid) == parts[2] { // else the number belongs to another process by now
			awaitEnd(fd)
		}
		syscall.Close(fd)
	} else if err != syscall.ESRCH {
		return // a kernel before 5.3
	}
	if none(jailsFD) {
		return
	}
	killed := map[string]bool{}
	for calm := 0; calm < calmLooks; time.Sleep(lookPause) {
		if killStranded(starter, killed) {
			calm = 0
		} else {
			calm++
		}
	}
}

// none reports whether a pipe has no bytes. Its other end may still be open: in a child of the
// starter that does not execute its program yet.
func none(pipe int) bool {
	n, err := syscall.Read(pipe, make([]byte, 1))
	return n == 0 && err == nil || err == syscall.EAGAIN
}

// awaitEnd returns when the process has ended.
func awaitEnd(fd int) {
	for _, p := range filePages() {
		p.drop()
	}
	for {
		if _, err := poll([]pollFD{{fd: int32(fd), events: pollIn}}, 0); err != syscall.EINTR {
			return
		}
	}
}

// began returns when the process began, as its token says it.
func began(pid int) string {
	if f := statFields(strconv.Itoa(pid)); len(f) > 19 {
		return f[19]
	}
	return ""
}

// killStranded kills the first process of each jail of the starter, with which
// the kernel ends the others in it, and reports whether there was a new one. One
// signal is enough: a process that cannot end yet, in a frozen container for
// example, ends by it when it can.
func killStranded(starter string, killed map[string]bool) (found bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !stranded(e.Name(), starter) {
			continue
		}
		process := e.Name() + "-" + began(pid)
		if killed[process] {
			continue
		}
		killed[process], found = true, true
		fd, err := openProcess(pid)
		if err != nil {
			continue
		}
		if stranded(e.Name(), starter) { // the number may have become another's
			_, _, _ = syscall.Syscall6(sysPidfdSendSignal, uintptr(fd), uintptr(syscall.SIGKILL), 0, 0, 0, 0)
		}
		syscall.Close(fd)
	}
	return found
}

// stranded reports whether the process is the first of its namespace and
// carries a token of the starter.
func stranded(pid, starter string) bool {
	args, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return false // it ended
	}
	carries := false
	for _, a := range split(string(args), "\x00") {
		token, marked := cutPrefix(a, Mark)
		_, rest, _ := cut(token, "_")
		carries = carries || marked && hasPrefix(rest, starter+"-")
	}
	if !carries {
		return false
	}
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return false
	}
	for _, line := range lines(status) {
		if numbers, ok := cutPrefix(line, "NSpid:"); ok {
			n := fields(numbers)
			return len(n) > 1 && n[len(n)-1] == "1"
		}
	}
	return false
}

func openProcess(pid int) (int, error) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// StartReaper starts one for this process, which is the starter of that
// identity, and returns its number. The pipe does not block its reader, and has a byte for
// each jail that has not ended.
func StartReaper(identity string, jails int) (pid int, err error) {
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(null)
	fd := uintptr(null)
	return syscall.ForkExec("/proc/self/exe", []string{ReaperName, identity}, &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{fd, fd, fd, jailsFD: uintptr(jails)}, // a second processor would cost memory only
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
}
