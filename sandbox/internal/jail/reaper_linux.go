package jail

import (
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
}

// needReaper starts it where none runs. It costs a jail a system call, and the
// first one half a millisecond.
func needReaper() error {
	reaper.mu.Lock()
	defer reaper.mu.Unlock()
	if reaper.pid != 0 {
		if ended, err := unix.Wait4(reaper.pid, nil, unix.WNOHANG, nil); ended == 0 && err == nil {
			return nil
		}
	}
	pid, err := jailinit.StartReaper(token.Own())
	if err == nil {
		reaper.pid = pid
	}
	return err
}
