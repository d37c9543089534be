package gate

import (
	"net"
	"sync"
)

// limited accepts no more connections than it has room for: every one that
// an agent opens is a descriptor of the worker, which others need too.
type limited struct {
	net.Listener
	free chan struct{}   // holds a value for each open connection
	done <-chan struct{} // closed when nothing more is accepted
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.free })}, nil
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
