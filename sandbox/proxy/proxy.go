// Package proxy is the way out of a jail to the hosts on a list: an HTTP
// proxy that runs outside, on a listener that was opened inside.
//
//	program inside ──▶ listener of the jail ──▶ Serve ──▶ name on the list?
//	                                              │ one resolution, every address checked
//	                                              │ the checked address is dialled
//	                                              ▼
//	                                    TLS: the name asked for is the name agreed on
//
// What is asked for has to be what is reached. A name is resolved once, here;
// addresses of this host, of private networks and of machine metadata are
// refused unless they are on the list themselves. A tunnel to port 443 has to
// carry TLS for the same name, in the open; each plain request on a kept
// connection is decided anew. Budgets bound bytes and connections.
//
// It cannot stop a program from sending data to a host that is allowed.
package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A Config says what a Proxy allows. The zero value allows nothing.
type Config struct {
	Rules Rules

	// Ask decides on what no rule names. No answer within AskTimeout, 30 s if
	// zero, is a no. The answer holds for the life of the Proxy.
	Ask        func(ctx context.Context, host string, port uint16) bool
	AskTimeout time.Duration

	MaxBytes       int64 // in both directions together; 0 is no limit
	MaxConnections int   // at once; default 256

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

// A Decision is the answer to one request.
type Decision struct {
	Time    time.Time
	Method  string // CONNECT, or the request's own
	Host    string
	Port    uint16
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
	ReasonConnect   Reason = "unreachable" // nobody answers there
	ReasonNotTLS    Reason = "not-tls"     // a tunnel to port 443 carries something else
	ReasonName      Reason = "other-name"  // TLS asks for another name, or hides it
	ReasonBudget    Reason = "budget"      // bytes or connections are used up
)

// A Proxy serves one jail.
type Proxy struct {
	cfg    Config
	used   atomic.Int64 // bytes
	active atomic.Int64 // connections

	mu      sync.Mutex
	answers map[string]bool // of Ask; guarded by mu
}

// New returns a Proxy.
func New(cfg Config) *Proxy {
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 256
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
	return &Proxy{cfg: cfg, answers: map[string]bool{}}
}

// Used returns the bytes that went through, in both directions.
func (p *Proxy) Used() int64 { return p.used.Load() }

// Serve answers the connections of l until l is closed, as it is when the
// jail ends, or ctx ends. When it returns, all connections are closed.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
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
		all.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			p.serve(ctx, c)
		})
	}
}

// decide answers whether host and port may be reached, and through which
// addresses.
func (p *Proxy) decide(ctx context.Context, host string, port uint16) ([]netip.AddrPort, Reason) {
	if !p.cfg.Rules.Allows(host, port) && !p.ask(ctx, host, port) {
		return nil, ReasonNotListed
	}
	addresses := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addresses = append(addresses, a)
	} else {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if addresses, err = p.cfg.Resolve(ctx, host); err != nil || len(addresses) == 0 {
			return nil, ReasonResolve
		}
	}
	var reachable []netip.AddrPort
	for _, a := range addresses {
		// All of them: a name that leads to a forbidden address among others
		// is after that one.
		if forbidden(a) && !p.cfg.Rules.allowsAddress(a, port) {
			return nil, ReasonAddress
		}
		reachable = append(reachable, netip.AddrPortFrom(a.Unmap(), port))
	}
	return reachable, ""
}

func (p *Proxy) ask(ctx context.Context, host string, port uint16) bool {
	if p.cfg.Ask == nil {
		return false
	}
	key := join(host, port)
	if answer, ok := p.answered(key); ok {
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.AskTimeout)
	defer cancel()
	answer := make(chan bool, 1)
	go func() { answer <- p.cfg.Ask(ctx, host, port) }() // ends when Ask does, whose ctx ends
	yes := false
	select {
	case yes = <-answer:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[key] = yes
	return yes
}

func (p *Proxy) answered(key string) (answer, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, ok = p.answers[key]
	return answer, ok
}

// dial connects to the first of the checked addresses that answers.
func (p *Proxy) dial(ctx context.Context, addresses []netip.AddrPort) (c net.Conn, a netip.AddrPort, err error) {
	for _, a = range addresses {
		if c, err = p.cfg.Dial(ctx, a); err == nil {
			return c, a, nil
		}
	}
	return nil, netip.AddrPort{}, err
}

func (p *Proxy) decided(d Decision) {
	if p.cfg.Hooks.Decided != nil {
		p.cfg.Hooks.Decided(d)
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
