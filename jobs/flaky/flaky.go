// Package flaky is a way to a server that can be cut, slowed down, moved far away, or left
// without answers.
package flaky

import (
	"math/rand/v2"
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
	distance  Distance
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

// A Distance is how far away a server seems to be.
type Distance struct {
	RoundTrip time.Duration // what an answer takes longer
	// Stalls is the share of the pieces, of those that go either way, which are late by a time
	// between Shortest and Longest, with all that is behind them: from 0 to 1. What a
	// connection sends one way within a round trip is one piece, since a busy machine cuts the
	// same bytes into more.
	Stalls            float64
	Shortest, Longest time.Duration
}

// Move moves the server away. What comes fast behind each other arrives so, only later.
func (p *Proxy) Move(d Distance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.distance = d
}

// late is by how much the next bytes are. Piece is when the piece that they may be of began.
func (p *Proxy) late(piece *time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.distance
	if time.Since(*piece) < d.RoundTrip {
		return d.RoundTrip / 2
	}
	*piece = time.Now()
	if d.Stalls > 0 && rand.Float64() < d.Stalls {
		return d.RoundTrip/2 + d.Shortest + time.Duration(rand.Float64()*float64(d.Longest-d.Shortest))
	}
	return d.RoundTrip / 2
}

// Heal ends what Cut, Blackhole, Delay and Move began. Answers that were swallowed are
// lost, so Heal drops their connections.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blackhole {
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.down, p.blackhole, p.delay, p.distance = false, false, 0, Distance{}
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

// A piece is some bytes on their way, and when they arrive.
type piece struct {
	data []byte
	due  time.Time
}

func (p *Proxy) pass(to, from net.Conn, answers bool) {
	underway := make(chan piece, 1024)
	p.done.Go(func() { p.arrive(to, from, underway) })
	defer func() {
		close(underway)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
	}()
	buf := make([]byte, 64<<10)
	var began time.Time
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
		underway <- piece{append([]byte(nil), buf[:n]...), time.Now().Add(p.late(&began))}
	}
}

// arrive writes what is underway when it is due, until there is no more or nobody takes it.
func (p *Proxy) arrive(to, from net.Conn, underway <-chan piece) {
	defer func() { _, _ = to.Close(), from.Close() }()
	for piece := range underway {
		time.Sleep(time.Until(piece.due))
		if _, err := to.Write(piece.data); err != nil {
			_ = from.Close() // so that nothing more comes
			for range underway {
			}
			return
		}
	}
}
