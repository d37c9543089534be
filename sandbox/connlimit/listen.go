package connlimit

import "net"

// Listen returns a listener that accepts no more connections than a limit has room for:
// each is a descriptor of the process, which needs them for other things, too. What it
// accepts are [Conn] values. Once done is closed it accepts no more.
func Listen(l net.Listener, room *Limit, done <-chan struct{}) net.Listener {
	return &limited{l, room, done}
}

type limited struct {
	net.Listener
	room *Limit
	done <-chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	admitted := l.room.Admit(c, l.done)
	if admitted == nil {
		return nil, net.ErrClosed
	}
	return admitted, nil
}

// CloseIdle closes the connections that are not served, for a listener that is to end.
func (l *Limit) CloseIdle() {
	for _, c := range l.idle() {
		_ = c.Conn.Close() // its client learns it
	}
}

// idle takes the connections that are not served out of those that are counted.
func (l *Limit) idle() (found []*Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.serving == 0 {
			c.closed = true
			delete(l.open, c)
			found = append(found, c)
		}
	}
	return found
}
