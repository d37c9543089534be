package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	maxTable       = 4096 // names that have an address inside
	maxPerSecond   = 2000 // questions by UDP; a program that asks more often waits
	maxWaiting     = 64   // questions that wait for a person's answer
	maxQuestionLen = 4096
	tcpIdle        = 30 * time.Second
)

// A table gives each allowed name an address of its own in 127.1.0.0/16,
// which tells the catcher what a connection is for. It never forgets one: an
// address that changed its meaning would lead to another host.
type table struct {
	mu        sync.Mutex
	addresses map[string]netip.Addr // guarded by mu
	names     []string              // by the address's lower half, from 1; guarded by mu
}

func (t *table) address(name string) (netip.Addr, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.addresses[name]; ok {
		return a, true
	}
	if len(t.names) >= maxTable {
		return netip.Addr{}, false
	}
	if t.addresses == nil {
		t.addresses = map[string]netip.Addr{}
	}
	t.names = append(t.names, name)
	n := len(t.names)
	a := netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)})
	t.addresses[name] = a
	return a, true
}

func (t *table) name(a netip.Addr) (string, bool) {
	b := a.Unmap().As16()
	t.mu.Lock()
	defer t.mu.Unlock()
	n := int(b[14])<<8 | int(b[15])
	if b[12] != 127 || b[13] != 1 || n == 0 || n > len(t.names) {
		return "", false
	}
	return t.names[n-1], true
}

// reply answers a message. It never asks another server.
func (p *Proxy) reply(ctx context.Context, message []byte) []byte {
	q, code, ok := parseQuestion(message)
	if !ok {
		return nil
	}
	if code != 0 {
		return q.answer(code, netip.Addr{})
	}
	name, ok := normal(q.name)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761, 6.3
		return q.found(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	d := Decision{Time: time.Now(), Method: "DNS", Host: name}
	if !ok || q.class != dnsInternet {
		d.Reason = ReasonMalformed
	} else if !p.catches(ctx, name) {
		d.Reason = ReasonNotListed
	} else if a, ok := p.table.address(name); ok {
		return q.found(a)
	} else {
		d.Reason = ReasonBudget
	}
	p.decided(d)
	return q.answer(dnsNotFound, netip.Addr{})
}

// found answers with the address of a name that exists.
func (q question) found(a netip.Addr) []byte {
	if q.kind != dnsA {
		a = netip.Addr{} // the name exists, and has nothing of the kind
	}
	return q.answer(0, a)
}

// catches reports whether connections to a name would be let through.
func (p *Proxy) catches(ctx context.Context, name string) bool {
	return p.cfg.Rules.Allows(name, 443) || p.cfg.Rules.Allows(name, 80) || p.permissions.permit(ctx, name, 443)
}

// ServeNames answers the questions that come to c, until c is closed, as it
// is when the jail ends, or ctx ends.
func (p *Proxy) ServeNames(ctx context.Context, c net.PacketConn) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	waiting := make(chan struct{}, maxWaiting)
	pace := pace{began: time.Now()}
	buf := make([]byte, maxQuestionLen)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pace.wait(ctx)
		if err != nil {
			continue // such as "port unreachable" for an earlier answer
		}
		message := append([]byte(nil), buf[:n]...)
		if p.cfg.Ask == nil {
			_, _ = c.WriteTo(p.reply(ctx, message), from) // a client that has gone will not miss it
			continue
		}
		select {
		case waiting <- struct{}{}:
			all.Go(func() {
				defer func() { <-waiting }()
				_, _ = c.WriteTo(p.reply(ctx, message), from)
			})
		default: // it will ask again
		}
	}
}

// A pace bounds how often something happens, so that no program inside keeps a
// processor outside busy.
type pace struct {
	began time.Time
	n     int
}

func (p *pace) wait(ctx context.Context) {
	const window = 100 * time.Millisecond
	p.n++
	passed := time.Since(p.began)
	if passed >= window {
		p.began, p.n = time.Now(), 1
		return
	}
	if p.n > maxPerSecond/10 {
		select {
		case <-time.After(window - passed):
		case <-ctx.Done():
		}
	}
}

// namesTCP answers the questions of one connection.
func (p *Proxy) namesTCP(ctx context.Context, c *conn) {
	if c.counted == nil {
		return
	}
	pace := pace{began: time.Now()}
	for ctx.Err() == nil {
		_ = c.SetDeadline(time.Now().Add(tcpIdle))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, message); err != nil {
			return
		}
		pace.wait(ctx)
		_ = c.SetDeadline(time.Time{}) // a person may have to answer
		out := p.reply(ctx, message)
		if out == nil {
			return
		}
		out = append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)
		_ = c.SetDeadline(time.Now().Add(tcpIdle))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}
