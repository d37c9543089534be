// Package thread gives work a thread that ends with it: one that is in another
// process's namespaces or control groups, or whose end kills a process, must not
// serve other goroutines.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Alone runs f on a thread that ends with the calling goroutine, which has
// nothing else to do, unless f unlocks it. The main thread never ends: it
// stands still while another one is found.
func Alone(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		Alone(f)
	}()
	<-done
}
