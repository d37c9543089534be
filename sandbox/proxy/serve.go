package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	maxHead     = 64 << 10
	headTimeout = 60 * time.Second // also how long a kept connection may be idle
)

// serve answers the requests of one connection.
func (p *Proxy) serve(ctx context.Context, c net.Conn) {
	if p.active.Add(1) > int64(p.cfg.MaxConnections) {
		p.active.Add(-1)
		p.refuse(c, Decision{Reason: ReasonBudget})
		return
	}
	defer p.active.Add(-1)
	br := bufio.NewReaderSize(c, maxHead)
	for {
		_ = c.SetReadDeadline(time.Now().Add(headTimeout))
		req, err := readRequest(br)
		if errors.Is(err, errMalformed) {
			p.refuse(c, Decision{Reason: ReasonMalformed})
			return
		}
		if err != nil {
			return
		}
		_ = c.SetReadDeadline(time.Time{})
		if req.Method == http.MethodConnect {
			p.tunnel(ctx, c, br, req)
			return
		}
		if !p.forward(ctx, c, req) {
			return
		}
	}
}

var errMalformed = errors.New("malformed request")

// readRequest reads a head that every program reads in the same way, or none.
func readRequest(br *bufio.Reader) (*http.Request, error) {
	head, err := peekHead(br)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for i, line := range bytes.Split(head, []byte("\r\n")) {
		switch {
		case bytes.ContainsAny(line, "\x00\r\n"):
			return nil, errMalformed
		case i > 0 && len(line) > 0 && (line[0] == ' ' || line[0] == '\t'):
			return nil, errMalformed // a line that continues the one before
		case len(line) >= 5 && bytes.EqualFold(line[:5], []byte("host:")):
			hosts = append(hosts, strings.TrimSpace(string(line[5:])))
		}
	}
	if len(hosts) > 1 {
		return nil, errMalformed
	}
	req, err := http.ReadRequest(br)
	if err != nil {
		return nil, errMalformed
	}
	if len(req.Header["Content-Length"]) > 1 || (len(req.TransferEncoding) > 0 && req.Header.Get("Content-Length") != "") {
		return nil, errMalformed
	}
	if len(hosts) == 1 {
		req.Host = hosts[0] // instead of the URL's, with which it is compared
	}
	return req, nil
}

func peekHead(br *bufio.Reader) ([]byte, error) {
	for n := 1; ; n++ {
		if _, err := br.Peek(n); errors.Is(err, bufio.ErrBufferFull) {
			return nil, errMalformed
		} else if err != nil {
			return nil, err
		}
		n = br.Buffered()
		b, err := br.Peek(n)
		if err != nil {
			return nil, err
		}
		if end := bytes.Index(b, []byte("\r\n\r\n")); end >= 0 {
			return b[:end], nil
		}
	}
}

// forward answers a plain request and reports whether the connection can
// carry another.
func (p *Proxy) forward(ctx context.Context, c net.Conn, req *http.Request) bool {
	d := Decision{Time: time.Now(), Method: req.Method}
	host, port, ok := target(req.URL.Host, "80")
	d.Host, d.Port = host, port
	asked, askedPort, okHost := target(req.Host, "80")
	if !ok || !okHost || req.URL.Scheme != "http" || req.URL.User != nil || asked != host || askedPort != port {
		d.Reason = ReasonMalformed
		p.refuse(c, d)
		return false
	}
	var addresses []netip.AddrPort
	if p.exhausted() {
		d.Reason = ReasonBudget
	} else {
		addresses, d.Reason = p.decide(ctx, host, port)
	}
	if d.Reason != "" {
		p.refuse(c, d)
		return false // its body, if it has one, was not read
	}
	traffic := &traffic{proxy: p}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			up, a, err := p.dial(ctx, addresses)
			if err != nil {
				return nil, err
			}
			d.Address = a
			return &counted{Conn: up, traffic: traffic}, nil
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead,
		ResponseHeaderTimeout: 10 * time.Minute,
	}
	out := req.Clone(ctx)
	out.RequestURI, out.Close, out.Host = "", false, ""
	removeHopHeaders(out.Header)
	resp, err := transport.RoundTrip(out)
	if err != nil {
		d.Reason = ReasonConnect
		p.refuse(c, d)
		return false
	}
	defer resp.Body.Close()
	d.Allowed = true
	p.decided(d)
	removeHopHeaders(resp.Header)
	last := req.Close || !req.ProtoAtLeast(1, 1)
	if resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !last {
		resp.TransferEncoding = []string{"chunked"} // else only the end of the connection would end it
	}
	resp.Close = last
	err = resp.Write(c)
	p.closed(d, traffic)
	_, left := io.Copy(io.Discard, io.LimitReader(req.Body, maxHead))
	if errors.Is(left, http.ErrBodyReadAfterClose) {
		left = nil // the transport has closed the body, which reads it to its end
	}
	return err == nil && left == nil && !last
}

func removeHopHeaders(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Upgrade", "Expect",
	} {
		h.Del(name)
	}
}

// refuse says no in words that a program's error message will show.
func (p *Proxy) refuse(c net.Conn, d Decision) {
	if d.Time.IsZero() {
		d.Time = time.Now()
	}
	p.decided(d)
	status, text := http.StatusForbidden, ""
	where := join(d.Host, d.Port)
	switch d.Reason {
	case ReasonMalformed:
		status, text = http.StatusBadRequest, "this proxy answers CONNECT host:port and plain requests for http:// URLs"
	case ReasonNotListed:
		text = where + " is not on the list of allowed hosts"
	case ReasonAddress:
		text = where + " leads to an address of a private network, which is not on the list"
	case ReasonResolve:
		status, text = http.StatusBadGateway, where+": the name cannot be resolved"
	case ReasonConnect:
		status, text = http.StatusBadGateway, where+" does not answer"
	case ReasonBudget:
		status, text = http.StatusTooManyRequests, "the network budget is used up"
	default:
		text = where + ": " + string(d.Reason)
	}
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Refused: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), d.Reason, len(text)+1, text)
	// What the client still sends would turn our close into a reset, and the
	// reset would erase the answer before it is read.
	if h, ok := c.(interface{ CloseWrite() error }); ok && h.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		_, _ = io.CopyN(io.Discard, c, 256<<10)
	}
}

func (p *Proxy) closed(d Decision, t *traffic) {
	if p.cfg.Hooks.Closed != nil {
		p.cfg.Hooks.Closed(d, t.sent.Load(), t.received.Load())
	}
}
