// Package cover hides files from a jail that is made already, and shows it
// others, from outside.
//
// bubblewrap reads the whole table of mounts for each file or directory that it
// mounts. Root of the host can enter the jail's mount namespace instead, and
// mount all of them in the time of one before the agent is executed.
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
// jails, and mount there. It tries both with its own: root may lack the
// capability, the kernel be older than Linux 5.12, or a filter around its
// container refuse the calls.
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
	go thread.Alone(func() {
		m, err := Cover{
			Directory: Directory{Path: "/etc", Trees: []Tree{{Source: "/etc", Path: "etc"}}},
			Devices:   Devices{Path: "/dev", Names: []string{"null"}, Shared: 1 << 20},
		}.prepare()
		m.close()
		done <- errors.Join(err, enter(own))
	})
	return <-done == nil
})

// A Cover is what is changed of the view of a jail.
type Cover struct {
	Directory Directory // unless its Path is ""
	Devices   Devices   // the same
	Hidden    []string  // become devices that cannot be opened
	ReadOnly  []string  // nothing can be written below them
}

// A Covering is a Cover on its way to a jail. It ends with Apply or Close.
type Covering struct {
	namespace chan<- *os.File // nil when it has ended
	done      <-chan error
}

// Begin makes the directories, while the jail is being made. Nothing of it is to be
// seen anywhere until Apply.
func (c Cover) Begin() *Covering {
	namespace, done := make(chan *os.File, 1), make(chan error, 1)
	go thread.Alone(func() { done <- c.cover(namespace) })
	return &Covering{namespace, done}
}

// Apply covers what is seen in a mount namespace, which is not our own. What is
// not there needs not be hidden; a directory to put another one over must be.
func (w *Covering) Apply(namespace *os.File) error {
	err := foreign(namespace)
	if err == nil {
		w.namespace <- namespace
	}
	return errors.Join(err, w.Close())
}

// Close gives up a Covering that was not applied. It may be called twice.
func (w *Covering) Close() error {
	if w.namespace == nil {
		return nil
	}
	close(w.namespace)
	w.namespace = nil
	return <-w.done
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

// cover makes the directories, waits for the jail, and changes its view.
func (c Cover) cover(jail <-chan *os.File) (err error) {
	own, err := os.Open(ownNamespace)
	if err != nil {
		return err
	}
	defer own.Close()
	made, err := c.prepare()
	if err != nil {
		return err
	}
	defer made.close()
	namespace, ok := <-jail
	if !ok {
		return nil
	}
	if err := enter(namespace); err != nil {
		return err
	}
	// The thread may end later than the jail, and would keep its mounts.
	defer func() { err = errors.Join(err, enter(own)) }()
	if err := made.attach(); err != nil {
		return err
	}
	return c.mount()
}

// prepare makes what the jail is to be shown.
func (c Cover) prepare() (m made, err error) {
	if c.Directory.Path != "" {
		m, err = c.Directory.prepare()
	}
	if c.Devices.Path != "" && err == nil {
		var more made
		more, err = c.Devices.prepare()
		m = append(m, more...)
	}
	if err != nil {
		m.close()
	}
	return m, err
}

// mount covers what the jail is not to have.
func (c Cover) mount() error {
	for _, p := range c.Hidden {
		if err := mount("/dev/null", p); err != nil {
			return err
		}
	}
	for _, p := range c.ReadOnly {
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
