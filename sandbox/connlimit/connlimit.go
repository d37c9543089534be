// Package connlimit bounds how many connections are open at once, so that
// clients which hold idle connections do not lock others out.
//
//	Admit ──▶ open, has asked for nothing ──Begin──▶ served ──End──▶ idle
//	               ▲ closed first, to make room                        ▲ closed then
//
// A connection that is served is never closed for another one. Of the others
// the oldest is closed, and those that never were served before those that were.
package connlimit

import (
	"net"
	"sync"
	"time"
)

// Grace is how long a new connection has to ask for something before it may be
// closed for another one. Its request is on its way: a client that floods a listener
// must not push it out in between.
const Grace = 10 * time.Millisecond

// A Limit bounds the connections of one listener, or of several together. Its
// methods may be called from any goroutine.
type Limit struct {
	most int

	mu    sync.Mutex
	open  map[*Conn]bool
	clock uint64        // counts what happens to connections
	news  chan struct{} // closed when a connection may go, or has gone
}

// New returns a Limit of that many connections.
func New(most int) *Limit {
	return &Limit{most: most, open: map[*Conn]bool{}, news: make(chan struct{})}
}

// Admit counts a connection, once there is room for it: it closes another one,
// or waits for one that is served. Once done is closed it waits no longer: it
// closes c and returns nil.
func (l *Limit) Admit(c net.Conn, done <-chan struct{}) *Conn {
	for {
		admitted, news := l.try(c)
		if admitted != nil {
			return admitted
		}
		retry := time.NewTimer(Grace)
		select {
		case <-news:
		case <-retry.C:
		case <-done:
			retry.Stop()
			_ = c.Close() // its accept was not reported
			return nil
		}
		retry.Stop()
	}
}

// Try is Admit without waiting: where no other connection can go, it returns nil
// and leaves c as it is.
func (l *Limit) Try(c net.Conn) *Conn {
	admitted, _ := l.try(c)
	return admitted
}

func (l *Limit) try(c net.Conn) (*Conn, <-chan struct{}) {
	l.mu.Lock()
	var victim *Conn
	if len(l.open) >= l.most {
		if victim = l.next(); victim == nil {
			defer l.mu.Unlock()
			return nil, l.news
		}
		victim.closed = true
		delete(l.open, victim)
	}
	l.clock++
	admitted := &Conn{Conn: c, limit: l, at: l.clock, since: time.Now()}
	l.open[admitted] = true
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close() // its client learns it
	}
	return admitted, nil
}

// next is the connection that goes for another one; the caller holds mu.
func (l *Limit) next() (victim *Conn) {
	for c := range l.open {
		switch {
		case c.serving > 0, !c.served && time.Since(c.since) < Grace:
		case victim == nil, !c.served && victim.served, c.served == victim.served && c.at < victim.at:
			victim = c
		}
	}
	return victim
}

// tell wakes the callers that wait for room; the caller holds mu.
func (l *Limit) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

// A Conn is a connection that counts until it is closed.
type Conn struct {
	net.Conn
	limit *Limit

	// Guarded by the limit's mutex.
	at      uint64    // when something last happened to it
	since   time.Time // when it was admitted
	serving int
	served  bool
	closed  bool
}

// Begin keeps the connection open until End. It reports whether it still is:
// false says that it was closed for another one a moment ago.
func (c *Conn) Begin() bool {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.closed {
		return false
	}
	c.serving++
	c.served = true
	return true
}

// End is said once for each Begin that was true.
func (c *Conn) End() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.serving--
	c.limit.clock++
	c.at = c.limit.clock
	c.limit.tell()
}

// Close closes the connection; from then on it does not count.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if !c.closed {
		c.closed = true
		delete(c.limit.open, c)
		c.limit.tell()
	}
	return err
}

// CloseWrite ends what is sent, where the connection can do that.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}
