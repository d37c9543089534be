package jail

import (
	"fmt"
	"sync"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// reaper is the process that ends half-made jails when this one is killed, see
// [jailinit.ReaperName].
var reaper struct {
	mu  sync.Mutex
	pid int // guarded by mu; 0 before the first start
	// jails is a pipe with a byte for each jail that has not ended; guarded by mu. Nothing
	// else says that to another process after kill -9.
	jails *[2]int
}

// needReaper tells the reaper of a jail, until the jail has ended, and starts the reaper where
// none runs. It costs a jail some system calls, and the first one half a millisecond.
func needReaper() (forget func(), err error) {
	reaper.mu.Lock()
	defer reaper.mu.Unlock()
	if reaper.jails == nil {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return nil, err
		}
		reaper.jails = &pipe
	}
	if _, err := unix.Write(reaper.jails[1], []byte{0}); err != nil {
		return nil, fmt.Errorf("note the jail: %w", err)
	}
	if err := runReaper(); err != nil {
		jailEnded()
		return nil, err
	}
	return sync.OnceFunc(func() {
		reaper.mu.Lock()
		defer reaper.mu.Unlock()
		jailEnded()
	}), nil
}

// runReaper starts the reaper where none runs. The caller has reaper.mu.
func runReaper() error {
	if reaper.pid != 0 {
		if ended, err := unix.Wait4(reaper.pid, nil, unix.WNOHANG, nil); ended == 0 && err == nil {
			return nil
		}
	}
	pid, err := jailinit.StartReaper(token.Own(), reaper.jails[0])
	if err == nil {
		reaper.pid = pid
	}
	return err
}

// jailEnded takes the byte of a jail out of the pipe, where it is. The caller has reaper.mu.
func jailEnded() { _, _ = unix.Read(reaper.jails[0], make([]byte, 1)) }
