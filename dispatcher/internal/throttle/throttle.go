// Package throttle bounds what one client may cost: how often it may ask, and how many of
// its failures are told. What it remembers is bounded, too, however many clients there are.
package throttle

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// most is how many clients are known apart. Beyond that, new ones share one limit, until
// others have been quiet for long enough to be forgotten.
const most = 4096

// A Limiter lets each client do a thing so many times a second, and a burst of those. Its
// methods may be called from any goroutine.
type Limiter struct {
	every  rate.Limit
	burst  int
	others *rate.Limiter

	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

// NewLimiter returns a limiter, or nil, which limits nothing, for a rate of 0.
func NewLimiter(every float64, burst int) *Limiter {
	if every <= 0 {
		return nil
	}
	l := &Limiter{every: rate.Limit(every), burst: max(burst, 1), clients: map[string]*rate.Limiter{}}
	l.others = rate.NewLimiter(l.every, l.burst)
	return l
}

// Take counts one time of a client. If that is too often, it returns how long the client
// has to wait, and counts nothing.
func (l *Limiter) Take(client string, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
	taken := l.of(client, now).ReserveN(now, 1)
	if wait = taken.DelayFrom(now); wait > 0 {
		taken.CancelAt(now)
	}
	return wait
}

func (l *Limiter) of(client string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.clients[client]; known != nil {
		return known
	}
	if len(l.clients) >= most {
		for name, quiet := range l.clients { // those that a new one would be the same as
			if quiet.TokensAt(now) >= float64(l.burst) {
				delete(l.clients, name)
			}
		}
	}
	if len(l.clients) >= most {
		return l.others
	}
	l.clients[client] = rate.NewLimiter(l.every, l.burst)
	return l.clients[client]
}

const (
	// each and all are how many failures of one client, and of all of them, are told of a
	// minute one by one.
	each = 5
	all  = 60
)

// A Teller tells of failures, of each minute the first ones one by one and then how many
// more there were, so that whoever tries many times fills nothing. Its methods may be
// called from any goroutine. The zero value is ready.
type Teller struct {
	mu     sync.Mutex
	minute time.Time
	told   int
	failed map[string]int // by client
	more   int
}

// Count counts a failure of a client. One says that it is to be told; more is, at the first
// one of a minute, how many of the minute before were not.
func (t *Teller) Count(client string, now time.Time) (one bool, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil || now.Sub(t.minute) >= time.Minute {
		more = t.more
		t.minute, t.told, t.more, t.failed = now, 0, 0, map[string]int{}
	}
	if t.failed[client] < each && t.told < all {
		t.failed[client]++ // so it never has more clients than all
		t.told++
		return true, more
	}
	t.more++
	return false, more
}

// Rest returns how many failures have not been told, and forgets them.
func (t *Teller) Rest() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	more := t.more
	t.more = 0
	return more
}

// Network is what is taken for one client: an address, or the network of one in version 6,
// in which a host has as many as it likes.
func Network(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
}
