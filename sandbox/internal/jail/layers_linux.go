package jail

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/internal/overlay"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// Layers are directories below a workspace, the uppermost first, that the jail
// alone sees there. Without any the workspace is what it is.
type Layers struct {
	Lower     []string
	Workspace string
	ReadOnly  bool
	Upper     string // a directory on which the mechanism sees Workspace without Lower; "" for none
}

// start starts cmd in a group, where the layers lie on the workspace. If not clean,
// the thread must not be used again.
func (l Layers) start(cmd *exec.Cmd, group *cgroup.Group) (clean bool, err error) {
	if len(l.Lower) == 0 {
		return group.Start(cmd)
	}
	view := l.view()
	if err := view.Prepare(); err != nil {
		return true, err
	}
	if os.Geteuid() != 0 {
		if err := asUser(cmd, view, l.Workspace); err != nil {
			return true, err
		}
		return mapped(func() (bool, error) { return group.Start(cmd) })
	}
	if err := view.MountAlone(l.Workspace); err != nil {
		return false, err
	}
	_, err = group.Start(cmd)
	return false, err
}

// view is what lies on the workspace.
func (l Layers) view() overlay.View {
	if l.ReadOnly {
		return overlay.View{Lower: append([]string{l.Workspace}, l.Lower...), Alone: l.Upper}
	}
	return overlay.View{Lower: l.Lower, Upper: l.Workspace, Work: l.Workspace + ".work", Alone: l.Upper}
}

// remove removes what the kernel needed besides the upper layer.
func (l Layers) remove() error {
	if len(l.Lower) == 0 {
		return nil
	}
	return l.view().Remove()
}

// asUser lets this program mount the view, in a user namespace in which it is
// the same user and may, before it becomes the mechanism.
func asUser(cmd *exec.Cmd, view overlay.View, target string) error {
	self, err := jailinit.Executable()
	if err != nil {
		return err
	}
	l := jailinit.Layered{Lower: view.Lower, Upper: view.Upper, Work: view.Work, Alone: view.Alone, Target: target}
	cmd.Args = l.Wrap(cmd.Path, cmd.Args)
	cmd.Path = self
	a := cmd.SysProcAttr
	a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	// The kernel works in the upper layer with the rights of the process that mounted
	// it, over the user's own files.
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN, unix.CAP_FSETID}
	return nil
}

// mapping is held while this process can be looked into.
var mapping sync.Mutex

// mapped starts a child in a user namespace of its own. The child shares this
// process's memory until it executes, and where other processes of the same user
// may not look into that (PR_SET_DUMPABLE), this one may not write the child's
// table of users either. So they may, for the few milliseconds that takes.
func mapped(start func() (bool, error)) (clean bool, err error) {
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		return start()
	}
	mapping.Lock()
	defer mapping.Unlock()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return true, err
	}
	clean, err = start()
	return clean, errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
