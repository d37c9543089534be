package stdio

import (
	"io"
	"sync"
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

// How much of a stream is carried at once. Programs are silent for most of their time, and each has two
// streams. But some end before all is read that they have written, and what is not in the pipe by then is
// lost (Gemini CLI does so). So a stream that comes fast is read in large pieces.
const (
	least = 4 << 10
	large = 64 << 10
	calm  = 64 // so many small pieces in a row make a stream slow again
)

// largeBuffers are for streams while they come fast.
var largeBuffers = sync.Pool{New: func() any { return new([large]byte) }}

// copy carries one stream.
func (t *throttle) copy(to io.Writer, from io.Reader) error {
	most := large
	if t != nil {
		most = int(max(512, min(large, t.rate/8))) // small enough to flow, not to jump
	}
	own := make([]byte, min(least, most))
	buf, small := own, 0
	var lent *[large]byte // nil: buf is its own
	defer func() {
		if lent != nil {
			largeBuffers.Put(lent)
		}
	}()
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if t != nil {
				t.take(n)
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch small++; {
		case lent == nil && n == len(own) && n < most:
			lent, small = largeBuffers.Get().(*[large]byte), 0
			buf = lent[:most]
		case n >= least:
			small = 0
		case lent != nil && small == calm:
			largeBuffers.Put(lent)
			buf, lent = own, nil
		}
	}
}
