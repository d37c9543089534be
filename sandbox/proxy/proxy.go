// Package proxy is the way out of a jail to the hosts on a list: an HTTP
// proxy, a name service and a catcher of connections that run outside, on
// sockets that were opened inside.
//
//	told of the proxy ──▶ 127.0.0.1:3129 ──▶ CONNECT, GET http:// ──┐
//	everything else ──▶ 127.0.0.1:53 ──▶ name on the list?          ├─▶ name on the list?
//	                         │ 127.1.x.y, its own for each name     │     one resolution, every address checked
//	                         ▼                                      │     the checked address is dialed
//	                    0.0.0.0:80, :443 ──▶ Host, TLS for the name ┘
//
// A connection reaches exactly the host that the program asked for. A name is
// resolved once, here; addresses of this host, of private networks and of machine
// metadata are refused unless they are on the list themselves. Traffic to port 443
// must be TLS for the same name, in the open. Traffic to port 80 must be HTTP,
// and each request of a kept connection is decided anew. Budgets bound bytes,
// connections, and how many names are ever looked up.
//
// The name service asks no other server: a question never leaves. The proxy cannot
// stop a program from sending data to a host that is allowed, nor in the names
// that a wildcard allows.
package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/sandbox/connlimit"
)

// A Config says what a Proxy allows. The zero value allows nothing.
type Config struct {
	Rules Rules

	// Ask decides on hosts that no rule names. No answer within AskTimeout, 30 s if
	// zero, is a no. Other connections to the same host and port wait for
	// the same answer, which holds for the life of the Proxy. There are 256
	// questions at the most.
	Ask        func(ctx context.Context, host string, port uint16) bool
	AskTimeout time.Duration

	MaxBytes       int64 // in both directions together; 0 is no limit
	MaxConnections int   // at once; default 256
	MaxNames       int   // that are ever looked up; default 1024

	// Token, where others than the jail can reach the listener, is what a program has
	// to send along to be served as by a proxy; see [Env]. Empty: it needs none.
	Token string

	// Hint ends the refusal of a host that is not on the list: the way to
	// have it there.
	Hint string

	// Resolve and Dial replace the system's.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, address netip.AddrPort) (net.Conn, error)

	Hooks Hooks
}

// Hooks let a program watch. Every field may be nil. They run on the
// connection's goroutine and must not block.
type Hooks struct {
	Decided func(Decision)
	Closed  func(d Decision, sent, received int64) // after a connection that was allowed
}

// A Decision is the answer to one request. It holds nothing of a request but
// where it was to go.
type Decision struct {
	Time    time.Time
	Method  string // CONNECT, DNS, TLS for a connection that was caught, or the request's own
	Host    string
	Port    uint16         // 0: none was named
	Address netip.AddrPort // where it was allowed
	Allowed bool
	Reason  Reason // where it was not
}

// A Reason is why a request was refused.
type Reason string

// The reasons.
const (
	ReasonMalformed Reason = "malformed"   // not a request that a proxy can read in one way only
	ReasonNotListed Reason = "not-listed"  // no rule names the host and port
	ReasonAddress   Reason = "address"     // the name leads to an address that is not for jails
	ReasonResolve   Reason = "resolve"     // the name does not exist
	ReasonConnect   Reason = "unreachable" // the host does not answer
	ReasonNotTLS    Reason = "not-tls"     // what goes to port 443 is something else
	ReasonName      Reason = "other-name"  // TLS or a request asks for another name, or hides it
	ReasonBudget    Reason = "budget"      // bytes, connections or names are used up
)

// A Proxy serves one jail, or several that share budgets.
type Proxy struct {
	cfg    Config
	used   atomic.Int64 // bytes
	room   *connlimit.Limit
	beyond chan struct{} // holds a value for each connection beyond it

	permissions *permissions
	table       table
}

// New returns a Proxy.
func New(cfg Config) *Proxy {
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 256
	}
	if cfg.MaxNames == 0 {
		cfg.MaxNames = 1024
	}
	if cfg.AskTimeout == 0 {
		cfg.AskTimeout = 30 * time.Second
	}
	if cfg.Resolve == nil {
		cfg.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{Timeout: 20 * time.Second}).DialContext(ctx, "tcp", a.String())
		}
	}
	return &Proxy{
		cfg: cfg,
		permissions: &permissions{
			rules: cfg.Rules, user: cfg.Ask, timeout: cfg.AskTimeout, maxNames: cfg.MaxNames,
			answers: map[string]*answer{}, looked: map[string]bool{},
		},
		room: connlimit.New(cfg.MaxConnections), beyond: make(chan struct{}, 16), // some more are told that they are too many
	}
}

// Serve answers as a proxy what connects to l, until l is closed, as it is
// when the jail ends, or ctx ends. When it returns, all connections are closed.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	return p.accept(ctx, l, p.serve)
}

func (p *Proxy) accept(ctx context.Context, l net.Listener, serve func(context.Context, *conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return context.Cause(ctx)
		}
		if err != nil {
			// Out of descriptors, most likely: they come back.
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(50 * time.Millisecond):
				continue
			}
		}
		taken, err := p.admit(ctx, c)
		if err != nil {
			c.Close()
			return err
		}
		all.Go(func() {
			defer taken.leave()
			defer taken.Close()
			defer context.AfterFunc(ctx, func() { taken.Close() })()
			serve(ctx, taken)
		})
	}
}

// A conn is a connection of a client.
type conn struct {
	net.Conn
	counted *connlimit.Conn // nil: it is one too many
	leave   func()
	asked   bool
}

// admit counts a connection. An idle one makes room for it; if there is none, the
// connection is one too many. Further clients wait inside, without a descriptor
// of ours.
func (p *Proxy) admit(ctx context.Context, c net.Conn) (*conn, error) {
	for range 2 { // after the first time those are there that had no time to ask
		if counted := p.room.Try(c); counted != nil {
			return &conn{Conn: counted, counted: counted, leave: func() {}}, nil
		}
		select {
		case <-time.After(2 * connlimit.Grace):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case p.beyond <- struct{}{}:
		return &conn{Conn: c, leave: func() { <-p.beyond }}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask keeps the connection: it has asked for something. It reports whether it is
// still there.
func (c *conn) ask() bool {
	if !c.asked && c.counted != nil {
		c.asked = c.counted.Begin()
		return c.asked
	}
	return true
}

// CloseWrite ends what is sent to the client.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

func (p *Proxy) decided(d Decision) {
	if p.cfg.Hooks.Decided != nil {
		p.cfg.Hooks.Decided(d)
	}
}

func (p *Proxy) closed(d Decision, t *traffic) {
	if p.cfg.Hooks.Closed != nil {
		p.cfg.Hooks.Closed(d, t.sent.Load(), t.received.Load())
	}
}

// count adds to the bytes used and reports whether there are any left.
func (p *Proxy) count(n int) bool {
	used := p.used.Add(int64(n))
	return p.cfg.MaxBytes == 0 || used <= p.cfg.MaxBytes
}

func (p *Proxy) exhausted() bool {
	return p.cfg.MaxBytes != 0 && p.used.Load() >= p.cfg.MaxBytes
}
