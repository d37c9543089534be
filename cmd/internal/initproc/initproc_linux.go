package initproc

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/term"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// childVariable has the number of the child, in the environment of a first process that has
// started it.
const childVariable = cli.EnvPrefix + "INIT_CHILD"

// Run does the work of the first process until its child has ended, and then ends this one
// with the child's exit code, or with 128 and the signal that ended it. In all other
// processes it returns at once. An error says that no child could be started; this process
// can do the program's work itself.
func Run() error {
	if os.Getpid() != 1 {
		return nil
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	child, err := strconv.Atoi(os.Getenv(childVariable))
	if err != nil {
		if child, err = start(); err == nil {
			err = syscall.Exec("/proc/self/exe", os.Args, []string{childVariable + "=" + strconv.Itoa(child)})
		}
		if child == 0 {
			signal.Reset()
			return fmt.Errorf("processes that lose their parent stay as zombies, since this one could not start itself again: %w", err)
		}
	}
	os.Exit(serve(signals, child))
	return nil
}

// start starts the program as a child, in a process group of its own, which has the
// terminal if there is one: what that sends to its group reaches the child once.
func start() (pid int, err error) {
	groups := []syscall.SysProcAttr{{Setpgid: true}}
	if term.IsTerminal(0) {
		groups = append([]syscall.SysProcAttr{{Foreground: true}}, groups...) // it may be none of this session
	}
	for _, group := range groups {
		pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &group})
		if err == nil {
			break
		}
	}
	return pid, err
}

// serve reaps, and passes on what others send to this process, until the child has ended,
// and returns the exit code of that.
func serve(signals <-chan os.Signal, child int) int {
	for {
		if code, ended := reap(child); ended {
			return code
		}
		switch s := <-signals; s {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE: // about this process itself
		case syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP: // a first process does not stop
		default:
			_ = syscall.Kill(child, s.(syscall.Signal)) // it may have ended
		}
	}
}

// reap waits for each child that has ended, of its own or left to it, and returns the exit
// code of the one with the number if that is among them.
func reap(child int) (code int, ended bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil && !ended: // it never was a child of this process
			return 1, true
		case err != nil || pid == 0: // no other one has ended
			return code, ended
		case pid != child:
		case ws.Signaled():
			code, ended = 128+int(ws.Signal()), true
		default:
			code, ended = ws.ExitStatus(), true
		}
	}
}
