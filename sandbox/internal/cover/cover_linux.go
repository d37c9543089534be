// Package cover hides files from a jail that is made already, from outside.
//
// bubblewrap reads the whole table of mounts for each file that it covers. Who
// is root of the host can enter the jail's mount namespace instead, and cover
// all of them in the time of one before the agent is executed.
package cover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/penstock-run/penstock/sandbox/internal/thread"
	"golang.org/x/sys/unix"
)

const ownNamespace = "/proc/self/ns/mnt"

// Possible reports whether this process may enter the mount namespaces of its
// jails. It tries with its own: root may lack the capability, or a filter
// around its container refuse the call.
var Possible = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 {
		return false
	}
	own, err := os.Open(ownNamespace)
	if err != nil {
		return false
	}
	defer own.Close()
	done := make(chan error, 1)
	go thread.Alone(func() { done <- enter(own) })
	return <-done == nil
})

// Files covers what is seen in a mount namespace, which is not our own: hidden
// files become devices that cannot be opened, and nothing can be written below
// readOnly. What is not there needs no cover.
func Files(namespace *os.File, hidden, readOnly []string) error {
	if err := foreign(namespace); err != nil {
		return err
	}
	done := make(chan error, 1)
	go thread.Alone(func() { done <- files(namespace, hidden, readOnly) })
	return <-done
}

// foreign makes sure that it is no file of the host that is covered.
func foreign(namespace *os.File) error {
	own, errOwn := os.Stat(ownNamespace)
	its, err := namespace.Stat()
	if err = errors.Join(errOwn, err); err != nil {
		return err
	}
	if os.SameFile(own, its) {
		return errors.New("the jail has no mount namespace of its own")
	}
	return nil
}

func files(namespace *os.File, hidden, readOnly []string) (err error) {
	own, err := os.Open(ownNamespace)
	if err != nil {
		return err
	}
	defer own.Close()
	if err := enter(namespace); err != nil {
		return err
	}
	// The thread may end later than the jail, and would keep its mounts.
	defer func() { err = errors.Join(err, enter(own)) }()
	for _, p := range hidden {
		if err := mount("/dev/null", p); err != nil {
			return err
		}
	}
	for _, p := range readOnly {
		if err := mount(p, p); err != nil {
			return err
		}
	}
	return nil
}

// enter takes the calling thread into a mount namespace. Its root and
// directory are those of the namespace from then on.
func enter(namespace *os.File) error {
	// Threads of a process share these otherwise, and may not enter.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("setns", unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS))
}

// mount binds source to target, and lets nothing be written or opened as a
// device there. A bind takes flags in a second step only.
func mount(source, target string) error {
	err := unix.Mount(source, target, "", unix.MS_BIND, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if err != nil {
		return fmt.Errorf("cover %s: %w", target, err)
	}
	return nil
}
