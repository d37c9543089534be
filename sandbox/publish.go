package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// maxPublished is how many connections of one Publish are open at once. More
// wait in the listener's queue.
const maxPublished = 512

// Publish makes a port inside the jail reachable through l, a listener of the
// host. Each connection is joined with one from [Process.Dial] to the port of
// the jail's loopback, 127.0.0.1 or else ::1. If there is no listener inside yet,
// the connection is reset. A side that has nothing more to send ends its half
// only; at most 512 connections are open at once, and further ones wait.
//
// The address of l alone decides which clients may reach the port. An untrusted
// program answers there: a browser should not find it under the same
// name as anything that it keeps cookies for.
//
// Publish returns nil when the jail ends, the cause of ctx when ctx ends,
// and nil when another goroutine closes l. Then l is closed, and so are
// all connections. Spec.Dial has to be set.
func (p *Process) Publish(ctx context.Context, l net.Listener, port int) error {
	defer l.Close()
	if !p.spec.Dial {
		return errNoDial
	}
	if port < 1 || port > 65535 {
		return &net.AddrError{Err: "is not a port", Addr: strconv.Itoa(port)}
	}
	// Connections end after the listener: a client that sees their end finds no listener.
	all, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pub := &publication{p: p, listener: l, address: net.JoinHostPort("localhost", strconv.Itoa(port))}
	accepted, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-p.done:
		case <-ctx.Done():
		case <-accepted:
		}
		l.Close()
	}()
	pub.accept(ctx, all)
	close(accepted)
	<-closed
	select {
	case <-p.done:
		// Only data that was sent last is left in the connections.
		defer time.AfterFunc(time.Second, cancel).Stop()
	default:
		cancel()
	}
	pub.open.Wait()
	return context.Cause(ctx)
}

// A publication is one call of Publish.
type publication struct {
	p        *Process
	listener net.Listener
	address  string         // inside
	open     sync.WaitGroup // of its connections
}

// accept serves connections until the listener is closed, which it is when ctx
// ends. The connections end with all.
func (pub *publication) accept(ctx, all context.Context) {
	slots := make(chan struct{}, maxPublished)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		case <-pub.p.done:
			return
		}
		c, err := pub.listener.Accept()
		switch {
		case err == nil:
			pub.open.Go(func() {
				defer func() { <-slots }()
				pub.join(all, c)
			})
		case errors.Is(err, net.ErrClosed):
			return
		default:
			<-slots
			select { // Out of descriptors, most likely: they come back.
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			case <-pub.p.done:
			}
		}
	}
}

// join carries bytes between a connection of the host and one of the jail
// until both sides have ended, or one of them breaks.
func (pub *publication) join(ctx context.Context, outer net.Conn) {
	inner, err := pub.p.Dial(ctx, "tcp", pub.address)
	if err != nil {
		if t, ok := outer.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // a reset: the client learns that there is no listener
		}
		outer.Close()
		return
	}
	end := sync.OnceFunc(func() {
		sever(inner)
		sever(outer)
	})
	defer end()
	defer context.AfterFunc(ctx, end)()
	var back sync.WaitGroup
	back.Go(func() { forward(outer, inner, end) })
	forward(inner, outer, end)
	back.Wait()
}

// forward copies one direction, and ends that half.
func forward(to, from net.Conn, broken func()) {
	if _, err := io.Copy(to, from); err != nil {
		broken()
		return
	}
	half, ok := to.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		broken() // without halves, the end of one is the end of both
	}
}

// sever ends a connection. The process that connected inside still has its socket,
// and could make a Read or Write of ours block in the kernel; after a shutdown it
// cannot.
func sever(c net.Conn) {
	if s, ok := c.(interface {
		CloseRead() error
		CloseWrite() error
	}); ok {
		_, _ = s.CloseRead(), s.CloseWrite()
	}
	c.Close()
}
