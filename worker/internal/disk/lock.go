package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// ErrLocked: another holder, in this process or another one, has the lock.
var ErrLocked = errors.New("is in use")

// A Lock is a locked file. If it is not released, the kernel does so when the last
// process that has the file open has ended.
type Lock struct{ File *os.File }

// TryLock locks the file at path, which it creates; how is LOCK_EX or LOCK_SH.
func TryLock(path string, how int) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s %w", path, ErrLocked)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Its last owner may have removed the file between our open and our lock. Then
		// we hold a lock that no other process can see.
		if sameFile(f, path) {
			return &Lock{f}, nil
		}
		f.Close()
	}
}

// WaitLock calls TryLock until it succeeds or ctx ends. A blocking flock could not be
// interrupted, and would hold a thread for each waiting job.
func WaitLock(ctx context.Context, path string, how int) (*Lock, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		l, err := TryLock(path, how)
		if err == nil || !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", path, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// Share turns the lock into a shared one. A process that wants the lock exclusively
// cannot take it in between, because waiting processes poll.
func (l *Lock) Share() error {
	return os.NewSyscallError("flock", syscall.Flock(int(l.File.Fd()), syscall.LOCK_SH|syscall.LOCK_NB))
}

// Release releases the lock. It unlocks before it closes, because a child that another
// goroutine has just forked keeps a copy of the file open until its exec, and would keep
// the lock, too.
func (l *Lock) Release() error {
	err := syscall.Flock(int(l.File.Fd()), syscall.LOCK_UN)
	return errors.Join(os.NewSyscallError("flock", err), l.File.Close())
}

// Remove deletes the locked file and releases the lock.
func (l *Lock) Remove() error {
	return errors.Join(os.Remove(l.File.Name()), l.Release())
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
