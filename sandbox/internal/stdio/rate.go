package stdio

import (
	"cmp"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// slowed is how long, in all, a program has to have waited for
// Limits.OutputRate before the Exit says so.
const slowed = time.Second

// A throttle lets bytes through at a rate, all streams of a jail together. A
// second's worth may come at once. What is above waits in the pipe, and then
// the program does: nothing is lost, and nothing is kept in memory.
type throttle struct {
	rate   float64       // bytes per second
	opened chan struct{} // closed by open

	mu     sync.Mutex
	once   sync.Once
	tokens float64   // guarded by mu; less than zero: a writer waits for them
	filled time.Time // guarded by mu
	waited time.Duration
}

// newThrottle returns nil for no limit.
func newThrottle(rate int64) *throttle {
	if rate <= 0 {
		return nil
	}
	return &throttle{rate: float64(rate), tokens: float64(rate), filled: time.Now(), opened: make(chan struct{})}
}

// take takes n bytes and waits until they may pass.
func (t *throttle) take(n int) {
	wait := t.owe(n)
	if wait <= 0 {
		return
	}
	began := time.Now()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.opened:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waited += time.Since(began)
}

func (t *throttle) owe(n int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.tokens = min(t.rate, t.tokens+t.rate*now.Sub(t.filled).Seconds()) - float64(n)
	t.filled = now
	return time.Duration(-t.tokens / t.rate * float64(time.Second))
}

// open ends all waiting: no program is left to be slowed.
func (t *throttle) open() {
	if t != nil {
		t.once.Do(func() { close(t.opened) })
	}
}

// reached reports whether a program was slowed for more than a moment.
func (t *throttle) reached() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waited > slowed
}

// large is how much of a stream is carried at once. Some programs end before all is read that they
// have written, and what is not in the pipe by then is lost (Gemini CLI does so).
const large = 64 << 10

// largeBuffers are lent to a stream while something of it is carried: programs are silent for most
// of their time, and each has two streams.
var largeBuffers = sync.Pool{New: func() any { return new([large]byte) }}

// copy carries one stream.
func (t *throttle) copy(to io.Writer, from *os.File) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	most := large
	if t != nil {
		most = int(max(512, min(large, t.rate/8))) // small enough to flow, not to jump
	}
	for {
		if ended, err := t.carry(to, from, raw, most); ended || err != nil {
			return err
		}
	}
}

// carry waits for something of a stream and carries it.
func (t *throttle) carry(to io.Writer, from *os.File, raw syscall.RawConn, most int) (ended bool, err error) {
	var lent *[large]byte
	var n int
	errWait := raw.Read(func(fd uintptr) (done bool) {
		lent = largeBuffers.Get().(*[large]byte)
		for {
			if n, err = readNow(fd, lent[:most]); err != syscall.EINTR {
				break
			}
		}
		if err == syscall.EAGAIN {
			largeBuffers.Put(lent)
			return false
		}
		return true
	})
	if errWait != nil {
		_, closed := from.Read(nil) // the same, as os.ErrClosed
		return false, cmp.Or(closed, errWait)
	}
	defer largeBuffers.Put(lent)
	if n <= 0 || err != nil {
		return true, os.NewSyscallError("read", err)
	}
	if t != nil {
		t.take(n)
	}
	_, err = to.Write(lent[:n])
	return false, err
}
