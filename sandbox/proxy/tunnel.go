package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const helloTimeout = 20 * time.Second

// tunnel answers CONNECT.
func (p *Proxy) tunnel(ctx context.Context, c *conn, br *bufio.Reader, req *http.Request) {
	d := Decision{Time: time.Now(), Method: http.MethodConnect}
	var ok bool
	if d.Host, d.Port, ok = target(req.RequestURI, ""); !ok {
		d.Reason = ReasonMalformed
		p.refuse(c, d)
		return
	}
	established := func() error {
		_, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		return err
	}
	if d.Port == 80 {
		// Each request in it is decided; the first question is only whether
		// there is any use in asking.
		if p.decide(ctx, &d); d.Reason != "" {
			p.refuse(c, d)
		} else if established() == nil {
			p.to(ctx, c, br, d.Host, d.Port)
		}
		return
	}
	up := p.open(ctx, &d)
	if d.Reason != "" {
		p.refuse(c, d)
		return
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { up.Close() })()
	if established() == nil {
		p.join(c, br, up, d)
	}
}

// join lets both sides talk, once the client has said something that d allows.
func (p *Proxy) join(c *conn, br *bufio.Reader, up net.Conn, d Decision) {
	t := &traffic{proxy: p}
	check := func() bool {
		if d.Reason = inspect(c, br, d); d.Reason != "" {
			d.Allowed = false
			p.alert(c, d)
		}
		return d.Reason == "" && c.ask()
	}
	if d.Port == 443 && !check() {
		return
	}
	d.Allowed = true
	p.decided(d)
	if d.Port == 443 {
		check = func() bool { return true }
	}
	t.relay(c, br, &counted{Conn: up, traffic: t}, check)
	p.closed(d, t)
}

// Alerts of TLS (RFC 8446, section 6).
const (
	alertDenied       = 49
	alertUnrecognized = 112
)

// alert refuses where nothing can be said in HTTP, in words that programs
// with TLS show: "access denied", "unrecognized name".
func (p *Proxy) alert(c net.Conn, d Decision) {
	p.decided(d)
	if d.Reason == ReasonNotTLS || d.Port != 443 && d.Reason != ReasonName {
		return
	}
	number := byte(alertDenied)
	if d.Reason == ReasonName {
		number = alertUnrecognized
	}
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.Write([]byte{recordAlert, 3, 3, 0, 2, 2, number})
	linger(c)
}

// linger lets the client read what it was told. What it still sends would
// turn our close into a reset, and the reset would erase that.
func linger(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok && h.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		_, _ = io.CopyN(io.Discard, c, 256<<10)
	}
}

// inspect reads what the client says first, before it is passed on.
// To port 443 that is TLS. To other ports, which a rule has to name, it may be
// anything, after anything the other side says; but if it is TLS, it too must
// be for the name that the client asked for.
func inspect(c net.Conn, br *bufio.Reader, d Decision) Reason {
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	if d.Port == 443 {
		_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	}
	first, err := br.Peek(1)
	if d.Port != 443 && (err != nil || first[0] != recordHandshake) {
		return ""
	}
	if err != nil || first[0] != recordHandshake {
		return ReasonNotTLS
	}
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	hello, err := readHello(br)
	if err != nil {
		return ReasonNotTLS
	}
	want := d.Host
	if _, err := netip.ParseAddr(d.Host); err == nil {
		want = "" // certificates of addresses are asked for without a name
	}
	if hello.name != want || hello.hidden {
		return ReasonName
	}
	return ""
}

// traffic counts the bytes of one connection.
type traffic struct {
	proxy          *Proxy
	sent, received atomic.Int64
}

// counted is the connection to the other side; it ends when the budget does.
type counted struct {
	net.Conn
	traffic *traffic
}

var errBudget = errors.New("network budget used up")

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(int64(n))
	if !c.traffic.proxy.count(n) {
		return 0, errBudget
	}
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	if !c.traffic.proxy.count(len(b)) {
		return 0, errBudget
	}
	// Counted first: the answer may be through, and the sum told, before the
	// goroutine that wrote the request runs again.
	c.traffic.sent.Add(int64(len(b)))
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(int64(n - len(b)))
	return n, err
}

func (c *counted) closeWrite() {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

// relay copies both ways until both have ended or one has failed. Nothing
// goes out before check agrees.
func (t *traffic) relay(c net.Conn, br *bufio.Reader, up *counted, check func() bool) {
	var both sync.WaitGroup
	both.Go(func() {
		ok := check()
		if ok {
			_, err := io.Copy(up, br)
			ok = err == nil
		}
		if !ok {
			c.Close()
			up.Close()
			return
		}
		up.closeWrite()
	})
	both.Go(func() {
		if _, err := io.Copy(c, up); err != nil {
			c.Close()
			up.Close()
			return
		}
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	})
	both.Wait()
}
