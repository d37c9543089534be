package dashboard

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/penstock-run/penstock/dispatcher/internal/throttle"
)

const (
	// tries is how many tokens from one address may be refused within tryTime.
	tries   = 10
	tryTime = time.Minute
	// addresses bounds what is remembered. A token has 256 random bits, so guesses from
	// more addresses than these find none either.
	addresses = 4096
)

// A limiter bounds how many tokens are tried from an address.
type limiter struct {
	mu       sync.Mutex
	failures map[string]failures // by network
}

// failures of an address, since a time.
type failures struct {
	since time.Time
	n     int
}

func newLimiter() *limiter { return &limiter{failures: map[string]failures{}} }

// blocked returns how long an address has to wait before it may try again.
func (l *limiter) blocked(address string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.failures[throttle.Network(address)]; f.n >= tries {
		return max(0, tryTime-now.Sub(f.since))
	}
	return 0
}

// failed counts a token that was refused.
func (l *limiter) failed(address string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := throttle.Network(address)
	f, known := l.failures[at]
	if !known && len(l.failures) >= addresses {
		l.forget(now)
	}
	if now.Sub(f.since) >= tryTime {
		f = failures{since: now}
	}
	f.n++
	l.failures[at] = f
}

// forget makes room: of those whose time is over, or of any.
func (l *limiter) forget(now time.Time) {
	for at, f := range l.failures {
		if now.Sub(f.since) >= tryTime {
			delete(l.failures, at)
		}
	}
	for at := range l.failures {
		if len(l.failures) < addresses {
			return
		}
		delete(l.failures, at)
	}
}

const (
	// linkTime is how long a link works.
	linkTime = time.Minute
	// mostLinks bounds how many wait to be used; a new one replaces the oldest.
	mostLinks = 64
)

// links are the codes of links that were not used yet. It is all that a server knows and
// another one does not, and for a minute.
type links struct {
	mu      sync.Mutex
	waiting map[string]waitingLink // by code
}

type waitingLink struct {
	credential string
	made       time.Time
}

func newLinks() *links { return &links{waiting: map[string]waitingLink{}} }

// add makes a code for a credential.
func (l *links) add(credential string, now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := ""
	for code, link := range l.waiting {
		if now.Sub(link.made) >= linkTime {
			delete(l.waiting, code)
		} else if oldest == "" || link.made.Before(l.waiting[oldest].made) {
			oldest = code
		}
	}
	if len(l.waiting) >= mostLinks {
		delete(l.waiting, oldest)
	}
	code := rand.Text()
	l.waiting[code] = waitingLink{credential, now}
	return code
}

// take returns the credential of a code, which is used with that.
func (l *links) take(code string, now time.Time) (credential string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	link, ok := l.waiting[code]
	delete(l.waiting, code)
	return link.credential, ok && now.Sub(link.made) < linkTime
}
