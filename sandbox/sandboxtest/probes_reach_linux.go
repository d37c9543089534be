package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readAny reads the first of some files that can be read.
func readAny(paths []string) (out string, err error) {
	for _, p := range paths {
		if out, err = read([]string{p}); err == nil {
			return out, nil
		}
	}
	return "", err
}

// wait says that it runs, and does for as long as it may.
func wait([]string) (string, error) {
	fmt.Println("waiting")
	return sleep(nil)
}

// executeMemory executes a program that has no file.
func executeMemory([]string) (string, error) {
	fd, err := unix.MemfdCreate("program", 0) // the interpreter opens it again, so it has to stay open
	if err != nil {
		return "", err
	}
	if _, err := unix.Write(fd, []byte("#!/bin/sh\nexit 7\n")); err != nil {
		return "", err
	}
	const same = 9
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", same), []string{"program"},
		&syscall.ProcAttr{Files: []uintptr{0, 1, 2, 0, 0, 0, 0, 0, 0, uintptr(fd)}})
	if err != nil {
		return "", err
	}
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, 0, nil)
	return "exit-" + strconv.Itoa(status.ExitStatus()), err
}

func traceParent([]string) (string, error) { return "", unix.PtraceAttach(os.Getppid()) }

// withChild calls f with a child of this process, which it then ends.
func withChild(f func(pid int) error) error {
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
	if err != nil {
		return err
	}
	defer func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}()
	return f(pid)
}

// readChild reads what every program has mapped: its own header.
func readChild([]string) (string, error) {
	return "", withChild(func(pid int) error {
		b := make([]byte, 8)
		var at uint64
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err == nil {
			_, err = fmt.Sscanf(string(maps), "%x-", &at)
		}
		if err != nil {
			return errors.New("no-maps")
		}
		local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
		_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
		return err
	})
}

func takeDescriptor([]string) (string, error) {
	return "", withChild(func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.PidfdGetfd(fd, 1, 0)
		if err == unix.EBADF {
			return nil // the child has no such descriptor, but could have been asked
		}
		return err
	})
}

// unmask makes a user namespace, in which a program has every privilege, and
// tries to take a mount away there.
func unmask(a []string) (string, error) {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"unmask", probeWord, "umount", a[0]}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS},
	})
	if err != nil {
		return "", err
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return "tried", err
}

// unmount makes the bare call: a wrapper would look at the path first.
func unmount(a []string) (string, error) {
	runtime.LockOSThread()
	path, err := unix.BytePtrFromString(a[0])
	if err != nil {
		return "", err
	}
	_, _, errno := unix.Syscall(unix.SYS_UMOUNT2, uintptr(unsafe.Pointer(path)), unix.MNT_DETACH, 0)
	return "", errno
}
