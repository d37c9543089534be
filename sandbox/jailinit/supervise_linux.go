package jailinit

import (
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervise runs the agent as a child, and ends whatever the agent started
// when the agent ends, or when the runner is gone. It never returns nil.
func supervise(c Config) error {
	// Orphans of the agent come to this process instead of the host's init,
	// so that a daemon cannot leave by forking twice.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return &stepError{"set up", "subreaper", err}
	}
	polite := make(chan os.Signal, 1)
	signal.Notify(polite, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	agent, err := fork(c)
	if err != nil {
		return &stepError{"execute", c.Args[0], err}
	}
	if err := unix.Sendmsg(controlFD, []byte("running\x00"+strconv.Itoa(agent)), nil, nil, 0); err != nil {
		killChildren()
		os.Exit(1)
	}
	gone := make(chan struct{})
	go func() { // ends with the process
		var b [1]byte
		_, _ = unix.Read(controlFD, b[:])
		close(gone)
	}()
	ended := make(chan int)
	go func() { ended <- reap(agent) }() // ends with the process
	for {
		select {
		case <-polite:
			_ = syscall.Kill(-agent, syscall.SIGTERM)
		case <-gone:
			killChildren()
			os.Exit(137)
		case code := <-ended:
			killChildren()
			os.Exit(code)
		}
	}
}

func fork(c Config) (int, error) {
	err := error(syscall.ENOENT)
	for _, p := range candidates(c.Args[0], c.Env) {
		pid, e := syscall.ForkExec(p, c.Args, &syscall.ProcAttr{
			Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if e == nil {
			return pid, nil
		}
		if e != syscall.ENOENT && e != syscall.ENOTDIR {
			err = e
		}
	}
	return 0, err
}

// reap waits for all children until the agent is among them.
func reap(agent int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1
		case pid != agent:
		case status.Signaled():
			return 128 + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

// killChildren ends every descendant. Killing a parent hands its children to
// this process, so it is enough to end children until there are none.
func killChildren() {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		pids := children(os.Getpid())
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		for range pids {
			var status syscall.WaitStatus
			if _, err := syscall.Wait4(-1, &status, 0, nil); err == syscall.ECHILD {
				return
			}
		}
	}
}

// children lists the processes whose parent is pid.
func children(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name in the second field may hold spaces and parentheses.
		_, rest, _ := strings.Cut(string(stat[max(0, strings.LastIndex(string(stat), ")")):]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}
