package jailinit

import (
	"bytes"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// supervise runs the agent as a child, and ends whatever the agent started
// when the agent ends, or when the runner is gone. It never returns nil.
func supervise(c Config) error {
	// Orphans of the agent come to this process instead of the host's init,
	// so that a daemon cannot leave by forking twice.
	if err := prctl(prSetChildSubreaper, 1, 0); err != nil {
		return &stepError{"set up", "subreaper", err}
	}
	// The agent may have the same user, and must not get at the control socket
	// by tracing this process. The exec of a child undoes it for that child.
	if err := prctl(syscall.PR_SET_DUMPABLE, 0, 0); err != nil {
		return &stepError{"set up", "tracing", err}
	}
	polite := make(chan os.Signal, 1)
	signal.Notify(polite, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	agent, err := fork(c)
	if err != nil {
		return &stepError{"execute", c.Args[0], err}
	}
	gone := make(chan struct{})
	if tell("running", os.Getpid()) != nil {
		close(gone)
	} else {
		go obey(polite, gone) // ends with the process
	}
	ended, empty := reap(agent)
	for {
		select {
		case <-polite:
			_ = syscall.Kill(-agent, syscall.SIGTERM)
		case <-gone:
			killAll(empty)
			syscall.Exit(128 + int(syscall.SIGKILL))
		case e := <-ended:
			killAll(empty)
			if tell("exited", e.code, int(e.signal)) == nil {
				leave(gone)
			}
			syscall.Exit(e.code)
		}
	}
}

// leave gives the runner time to look at what goes with this process: its
// control groups. A runner that is gone needs not to know.
func leave(gone <-chan struct{}) {
	select {
	case <-gone:
	case <-time.After(time.Second):
	}
}

// obey reads what the runner says until there is no runner.
func obey(polite chan<- os.Signal, gone chan<- struct{}) {
	defer close(gone)
	word := make([]byte, 64)
	for {
		n, err := syscall.Read(controlFD, word)
		switch {
		case err == syscall.EINTR:
		case n <= 0:
			return
		case string(word[:n]) == "terminate":
			select {
			case polite <- syscall.SIGTERM:
			default: // it is being asked already
			}
		}
	}
}

// tell sends the runner a word and numbers.
func tell(word string, numbers ...int) error {
	for _, n := range numbers {
		word += "\x00" + strconv.Itoa(n)
	}
	return syscall.Sendmsg(controlFD, []byte(word), nil, nil, syscall.MSG_NOSIGNAL)
}

func fork(c Config) (int, error) {
	if c.needsSecond() {
		return forkSecond(c)
	}
	env := c.Env
	if os.Getpid() != 1 {
		// Should the agent kill this process, its own are found by the token.
		token, _ := cutPrefix(os.Args[1], Mark)
		env = append(slices.Clone(env), EnvMark+token)
	}
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

// A status is how the agent ended.
type status struct {
	code   int
	signal syscall.Signal
}

// reap waits for children, the agent among them, until there are none. Its
// goroutine ends then, or with the process.
func reap(agent int) (<-chan status, <-chan struct{}) {
	ended, none := make(chan status, 1), make(chan struct{})
	go func() {
		defer close(none)
		for {
			var ws syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &ws, 0, nil)
			switch {
			case err == syscall.EINTR:
			case err != nil:
				return
			case pid != agent:
			case ws.Signaled():
				ended <- status{128 + int(ws.Signal()), ws.Signal()}
			default:
				ended <- status{ws.ExitStatus(), 0}
			}
		}
	}()
	return ended, none
}

// killAll ends every descendant. Process 1 can name all others at once, and
// the kernel kills what it may not, or what is no descendant, when it ends: it
// only gives them a moment. Elsewhere killing a parent hands its children to
// this process, so it is enough to end children until there are none.
func killAll(empty <-chan struct{}) {
	first := os.Getpid() == 1
	for begin := time.Now(); !first || time.Since(begin) < time.Second; {
		if first {
			_ = syscall.Kill(-1, syscall.SIGKILL)
		} else {
			for _, pid := range children(os.Getpid()) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
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
		if f := statFields(e.Name()); len(f) > 1 && f[1] == strconv.Itoa(pid) && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// statFields returns the fields of the process's stat from the state on.
func statFields(pid string) []string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	// The name before may hold spaces and parentheses.
	return fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}
