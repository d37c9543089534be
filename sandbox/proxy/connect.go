package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Connect connects to a host and port for a program outside of the jail that calls it on the jail's
// behalf. It is decided, and counted, as a connection of the jail's own, except that the program is
// trusted with what it says. An error says why there is no connection.
func (p *Proxy) Connect(ctx context.Context, authority string) (net.Conn, error) {
	d := Decision{Time: time.Now(), Method: "CALL"}
	var ok bool
	if d.Host, d.Port, ok = target(authority, ""); !ok {
		d.Reason = ReasonMalformed
	}
	var up net.Conn
	if ok {
		up = p.open(ctx, &d)
	}
	if d.Reason != "" {
		p.decided(d)
		if !ok {
			return nil, errors.New(authority + " is no host and port")
		}
		_, text := words(d)
		return nil, errors.New(text)
	}
	d.Allowed = true
	p.decided(d)
	t := &traffic{proxy: p}
	return &connected{counted: counted{Conn: up, traffic: t}, closed: sync.OnceFunc(func() { p.closed(d, t) })}, nil
}

// connected is a connection of Connect. It is reported when it is closed.
type connected struct {
	counted
	closed func()
}

func (c *connected) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}
