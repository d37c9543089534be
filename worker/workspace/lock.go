package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// errLocked: somebody else, here or in another process, holds the lock.
var errLocked = errors.New("is in use")

// A lock is a locked file. The kernel gives it up when the last process that
// has the file open is gone.
type lock struct{ file *os.File }

// tryLock locks the file at path, which it creates; how is LOCK_EX or LOCK_SH.
func tryLock(path string, how int) (*lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s %w", path, errLocked)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Its last owner may have removed the file between our open and our
		// lock. Then we hold a lock that nobody else can see.
		if sameFile(f, path) {
			return &lock{f}, nil
		}
		f.Close()
	}
}

// waitLock is tryLock until it succeeds or ctx ends. A blocking flock could
// not be interrupted, and would hold a thread for each waiting job.
func waitLock(ctx context.Context, path string, how int) (*lock, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		l, err := tryLock(path, how)
		if err == nil || !errors.Is(err, errLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", path, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// share lets others have the lock, too, who want it shared. Whoever wants it
// alone has no chance in between: nobody waits for a lock in the kernel.
func (l *lock) share() error {
	return os.NewSyscallError("flock", syscall.Flock(int(l.file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB))
}

// release gives the lock up.
func (l *lock) release() error { return l.file.Close() }

// remove deletes the locked file and gives the lock up.
func (l *lock) remove() error {
	return errors.Join(os.Remove(l.file.Name()), l.file.Close())
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
