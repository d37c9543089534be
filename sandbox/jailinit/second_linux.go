package jailinit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/rootfs"
)

// secondWord is the argument of this program between the supervisor and the
// agent: a user namespace needs a process of its own, and what the walls would
// refuse has to be done in it before they stand.
const secondWord = "second"

// executedFD is closed by the exec of the agent, which is how the supervisor
// learns of it.
const executedFD = 3

// needsSecond reports whether c asks for what only the second program can do.
func (c Config) needsSecond() bool { return c.User != 0 }

// forkSecond starts the second program, and returns when it has become the
// agent. If it could not, it has said why on the control socket.
func forkSecond(c Config) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	attr := &syscall.SysProcAttr{Setsid: true}
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: int(c.User), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: int(c.User), HostID: os.Getgid(), Size: 1}}
	// For the mounts of hide, until the exec of the agent.
	attr.AmbientCaps = []uintptr{capSysAdmin}
	pid, err := syscall.ForkExec(Path, []string{Path, secondWord}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2, w.Fd(), uintptr(controlFD), uintptr(configFD)}, Sys: attr,
	})
	w.Close()
	if err != nil {
		return 0, err
	}
	if b, _ := io.ReadAll(r); len(b) > 0 {
		syscall.Exit(127) // the runner knows already
	}
	return pid, nil
}

// second never returns.
func second() {
	// Filters and walls belong to threads, and the one that executes counts.
	runtime.LockOSThread()
	if !isControl(controlFD) {
		syscall.Exit(127)
	}
	report(become())
	_, _ = syscall.Write(executedFD, []byte{1})
	syscall.Exit(127)
}

func become() error {
	c, err := readConfig()
	if err != nil {
		return &stepError{"set up", "configuration", err}
	}
	if err := hide(); err != nil {
		return err
	}
	if err := restrict(c); err != nil {
		return err
	}
	if err := os.Chdir(c.Dir); err != nil {
		return &stepError{"directory", c.Dir, underlying(err)}
	}
	return execute(c)
}

// hide covers what of /proc the engine leaves open, and gives up what that needs. An
// agent with a mapped user may be root outside.
func hide() error {
	for _, list := range [][]string{rootfs.Hidden, rootfs.HiddenFromRoot, {rootfs.SysRq}} {
		for _, p := range list {
			if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := syscall.Mount("/dev/null", p, "", syscall.MS_BIND, ""); err != nil {
				return &stepError{"set up", "hide " + p, err}
			}
		}
	}
	if err := prctl(prCapAmbient, prCapAmbientClearAll, 0); err != nil {
		return &stepError{"set up", "capabilities", err}
	}
	if err := dropCapabilities(); err != nil {
		return &stepError{"set up", "capabilities", err}
	}
	return nil
}
