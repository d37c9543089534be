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
		_ = syscall.Kill(-agent, syscall.SIGKILL)
		os.Exit(1)
	}
	gone := make(chan struct{})
	go func() { // ends with the process
		var b [1]byte
		_, _ = unix.Read(controlFD, b[:])
		close(gone)
	}()
	code, empty := reap(agent)
	for {
		select {
		case <-polite:
			_ = syscall.Kill(-agent, syscall.SIGTERM)
		case <-gone:
			killChildren(empty)
			os.Exit(128 + int(syscall.SIGKILL))
		case c := <-code:
			killChildren(empty)
			os.Exit(c)
		}
	}
}

func fork(c Config) (int, error) {
	// Should the agent kill this process, its own are found by the token.
	env := append(slices.Clone(c.Env), EnvMark+strings.TrimPrefix(os.Args[1], Mark))
	err := error(syscall.ENOENT)
	for _, p := range candidates(c.Args[0], c.Env) {
		pid, e := syscall.ForkExec(p, c.Args, &syscall.ProcAttr{
			Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
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

// reap waits for children, the agent among them, until there are none. Its
// goroutine ends then, or with the process.
func reap(agent int) (code <-chan int, empty <-chan struct{}) {
	ended, none := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(none)
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, 0, nil)
			switch {
			case err == syscall.EINTR:
			case err != nil:
				return
			case pid != agent:
			case status.Signaled():
				ended <- 128 + int(status.Signal())
			default:
				ended <- status.ExitStatus()
			}
		}
	}()
	return ended, none
}

// killChildren ends every descendant. Killing a parent hands its children to
// this process, so it is enough to end children until there are none.
func killChildren(empty <-chan struct{}) {
	for {
		for _, pid := range children(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-empty:
			return
		case <-time.After(time.Millisecond): // orphans arrive without notice
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
