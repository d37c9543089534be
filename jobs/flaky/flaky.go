// Package flaky is a way to a server that can be cut, slowed down, or left without answers.
package flaky

import (
	"net"
	"sync"
	"time"
)

// A Proxy is a way to a server. Its methods may be called from any goroutine.
type Proxy struct {
	listen net.Listener
	target string

	mu        sync.Mutex
	down      bool          // refuses and drops everything
	blackhole bool          // swallows what the server answers
	delay     time.Duration // of each piece from the server
	conns     map[net.Conn]bool
	done      sync.WaitGroup
}

// Listen opens a proxy on loopback that passes on to an address.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listen: l, target: target, conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listen.Close()
	p.Cut()
	p.done.Wait()
}

// URL is where the proxy listens, for clients of NATS.
func (p *Proxy) URL() string { return "nats://" + p.listen.Addr().String() }

// Cut drops all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Blackhole lets everything through to the server and nothing back: requests take
// effect and are never answered.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blackhole = true
}

// Delay slows down what the server answers.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends what Cut, Blackhole and Delay began. Answers that were swallowed are
// lost, so Heal drops their connections.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blackhole {
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.down, p.blackhole, p.delay = false, false, 0
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, upstream) {
			_ = client.Close()
			if err == nil {
				_ = upstream.Close()
			}
			continue
		}
		p.done.Go(func() { p.pass(upstream, client, false) })
		p.done.Go(func() { p.pass(client, upstream, true) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *Proxy) pass(to, from net.Conn, answers bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		blackhole, delay := p.blackhole, p.delay
		p.mu.Unlock()
		if answers && blackhole {
			continue
		}
		if answers && delay > 0 {
			time.Sleep(delay)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
