package jailinit

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// Where the mechanism gives no process table of its own, this program makes
// it, and the exact view with it, in three steps that are each this program
// again:
//
//	outer            the mechanism's process: waits, and ends all when the runner is gone
//	└─ build         pid 1, root of its own namespaces: makes the view, reaps
//	   └─ start      uid 1000 in one more user namespace: becomes the agent
//
// The process that holds capabilities over the view is in another user namespace
// than the agent, so the agent can neither trace it nor undo what it did.

// reportFD is where build tells outer that the agent is executed, in a byte,
// and how it ended, in two.
const reportFD = 6

// outer supervises build, as far as the runner can tell. It never returns nil.
func outer(c Config) error {
	polite := make(chan os.Signal, 1)
	signal.Notify(polite, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	before := counters()
	c.nested = true
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	reports, theirs, err := pipe()
	if err != nil {
		return &stepError{"set up", "pipe", err}
	}
	first, err := anew(c, attr, uintptr(theirs))
	if err != nil {
		return &stepError{"set up", "namespaces", err}
	}
	syscall.Close(theirs)
	if !executed(reports) {
		_ = syscall.Kill(first, syscall.SIGKILL)
	}
	gone, ended := make(chan struct{}), make(chan status, 1)
	go obey(polite, gone) // ends with the process, as the next does
	go func() { ended <- follow(first, reports) }()
	for {
		select {
		case <-polite:
			_ = syscall.Kill(first, syscall.SIGTERM)
		case <-gone:
			_ = syscall.Kill(first, syscall.SIGKILL)
			gone = nil
		case e := <-ended:
			for _, word := range exceeded(before, counters()) {
				_ = tell("reached\x00" + word)
			}
			_ = tell("exited", e.code, int(e.signal))
			os.Exit(e.code)
		}
	}
}

// executed waits until the agent is executed, or will not be. It reads nothing
// of what the runner says: until then that is for the agent's start. It
// returns false where the runner wants no agent any more, or is gone.
func executed(reports int) bool {
	for {
		fds := []pollFD{{fd: int32(reports), events: pollIn}, {fd: int32(controlFD), events: pollRdhup}}
		_, err := poll(fds, 0)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false
		case fds[0].revents != 0:
			_, _ = syscall.Read(reports, make([]byte, 1)) // the end of it is seen again
			return true
		case fds[1].revents != 0:
			return false
		}
	}
}

// follow returns when nothing of the jail is alive: the kernel ends pid 1 of a
// namespace only after all others in it.
func follow(first, reports int) status {
	var got []byte
	for b := make([]byte, 2); ; {
		n, err := syscall.Read(reports, b)
		if n > 0 {
			got = append(got, b[:n]...)
		} else if err != syscall.EINTR {
			break
		}
	}
	e := wait(first)
	if len(got) == 2 {
		return status{int(got[0]), syscall.Signal(got[1])}
	}
	return e
}

// anew executes this program once more, with the control socket and another
// configuration, and further descriptors from configFD+1 on.
func anew(c Config, attr *syscall.SysProcAttr, further ...uintptr) (int, error) {
	fd, err := memfd()
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	for b := c.Encode(); len(b) > 0; {
		n, err := syscall.Write(fd, b)
		if err != nil {
			return 0, err
		}
		b = b[n:]
	}
	closed := ^uintptr(0)
	return syscall.ForkExec(Path, os.Args, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: append([]uintptr{0, 1, 2, closed, uintptr(controlFD), uintptr(fd)}, further...), Sys: attr,
	})
}

func wait(pid int) status {
	for {
		var ws syscall.WaitStatus
		switch got, err := syscall.Wait4(pid, &ws, 0, nil); {
		case err == syscall.EINTR || (err == nil && got != pid):
		case err != nil:
			return status{127, 0}
		case ws.Signaled():
			return status{128 + int(ws.Signal()), ws.Signal()}
		default:
			return status{ws.ExitStatus(), 0}
		}
	}
}

// limitEvents are the files that count how often a limit was reached: the
// word for it, the controller, and the file and key in both versions of the
// kernel's interface.
var limitEvents = []struct{ word, controller, file1, key1, file2, key2 string }{
	{"memory", "memory", "memory.oom_control", "oom_kill", "memory.events", "oom_kill"},
	{"pids", "pids", "pids.events", "max", "pids.events", "max"},
}

// counters reads them for the control group of this process. What is not
// there stays zero.
func counters() map[string]int {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	n := map[string]int{}
	for _, line := range lines(own) {
		_, line, _ = cut(trimSpace(line), ":")
		controller, group, ok := cut(line, ":") // a name may hold colons
		if !ok {
			continue
		}
		for _, e := range limitEvents {
			dir, file, key := "/sys/fs/cgroup/"+controller+group+"/", e.file1, e.key1
			if controller == "" {
				dir, file, key = "/sys/fs/cgroup"+group+"/", e.file2, e.key2
			} else if controller != e.controller {
				continue
			}
			b, err := os.ReadFile(dir + file)
			if err != nil {
				continue
			}
			for _, line := range lines(b) {
				if f := fields(line); len(f) == 2 && f[0] == key {
					n[e.word], _ = strconv.Atoi(f[1])
				}
			}
		}
	}
	return n
}

func exceeded(before, after map[string]int) []string {
	var words []string
	for _, e := range limitEvents {
		if after[e.word] > before[e.word] {
			words = append(words, e.word)
		}
	}
	return words
}
