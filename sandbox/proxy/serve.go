package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	maxHead     = 64 << 10
	headTimeout = 60 * time.Second // also how long a kept connection may be idle
)

// serve answers what a connection asks of the proxy.
func (p *Proxy) serve(ctx context.Context, c *conn) {
	if c.counted == nil {
		p.refuse(c, Decision{Reason: ReasonBudget})
		return
	}
	br := bufio.NewReaderSize(c, maxHead)
	p.requests(ctx, c, br, func(req *http.Request) bool {
		if !p.known(req) {
			deny(c)
			return false
		}
		if !c.ask() {
			return false
		}
		if req.Method == http.MethodConnect {
			p.tunnel(ctx, c, br, req)
			return false
		}
		d := Decision{Time: time.Now(), Method: req.Method}
		host, port, ok := target(req.URL.Host, "80")
		asked, askedPort, okHost := target(req.Host, "80")
		d.Host, d.Port = host, port
		if !ok || !okHost || req.URL.Scheme != "http" || req.URL.User != nil || asked != host || askedPort != port {
			d.Reason = ReasonMalformed
		}
		return p.forward(ctx, c, req, d)
	})
}

// user is the name that programs send with the token.
const user = "penstock"

// known reports whether a request brings the token, if there is one.
func (p *Proxy) known(req *http.Request) bool {
	if p.cfg.Token == "" {
		return true
	}
	auth := &http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}
	_, token, _ := auth.BasicAuth()
	return subtle.ConstantTimeCompare([]byte(token), []byte(p.cfg.Token)) == 1
}

// deny answers a client without the token. It is no decision about the jail, as the
// client may be any program on this host.
func deny(c net.Conn) {
	const text = "the proxy of a session wants the token that its programs have"
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nProxy-Authenticate: Basic realm=\"penstock\"\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		http.StatusProxyAuthRequired, text, len(text)+1, text)
	linger(c)
}

// requests reads one request after the other, as long as answer agrees.
func (p *Proxy) requests(ctx context.Context, c net.Conn, br *bufio.Reader, answer func(*http.Request) bool) {
	for ctx.Err() == nil {
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
		if !answer(req) {
			return
		}
	}
}

// to answers the requests of a connection that leads to one host: what was
// caught, or is in a tunnel to port 80.
func (p *Proxy) to(ctx context.Context, c *conn, br *bufio.Reader, host string, port uint16) {
	p.requests(ctx, c, br, func(req *http.Request) bool {
		if !c.ask() {
			return false
		}
		d := Decision{Time: time.Now(), Method: req.Method, Host: host, Port: port}
		asked, askedPort, ok := target(req.Host, "80")
		switch {
		case !ok || !strings.HasPrefix(req.RequestURI, "/") || req.Method == http.MethodConnect:
			d.Reason = ReasonMalformed
		case asked != host || askedPort != port:
			d.Reason = ReasonName
		}
		req.URL.Scheme, req.URL.Host = "http", strings.TrimSuffix(join(host, port), ":80")
		return p.forward(ctx, c, req, d)
	})
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

// peekHead waits for a head. What does not begin like one, such as SOCKS or
// TLS, is not waited for: its sender waits, too.
func peekHead(br *bufio.Reader) ([]byte, error) {
	for n, searched := 1, 0; ; n++ {
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
		if b[0] < 'A' || b[0] > 'Z' {
			return nil, errMalformed
		}
		if end := bytes.Index(b[searched:], []byte("\r\n\r\n")); end >= 0 {
			return b[:searched+end], nil
		}
		searched = max(0, n-3)
	}
}

// forward answers a plain request, unless d refuses it already, and reports
// whether the connection can carry another.
func (p *Proxy) forward(ctx context.Context, c net.Conn, req *http.Request, d Decision) bool {
	var up net.Conn
	if d.Reason == "" {
		up = p.open(ctx, &d)
	}
	if d.Reason != "" {
		p.refuse(c, d)
		return false // its body, if it has one, was not read
	}
	defer up.Close()
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		// No server behind us will be asked: it is we who want the body.
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	traffic := &traffic{proxy: p}
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
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
		if p.exhausted() {
			d.Reason = ReasonBudget
		}
		p.refuse(c, d)
		return false
	}
	defer resp.Body.Close()
	d.Allowed = true
	p.decided(d)
	last := req.Close || !req.ProtoAtLeast(1, 1)
	err = pass(c, resp, last)
	p.closed(d, traffic)
	_, left := io.Copy(io.Discard, io.LimitReader(req.Body, maxHead))
	if errors.Is(left, http.ErrBodyReadAfterClose) {
		left = nil // the transport has closed the body, which reads it to its end
	}
	return err == nil && left == nil && !last
}

// pass writes an answer to the client.
func pass(c net.Conn, resp *http.Response, last bool) error {
	removeHopHeaders(resp.Header)
	if resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && !last {
		resp.TransferEncoding = []string{"chunked"} // else only the end of the connection would end it
	}
	resp.Close = last
	return resp.Write(c)
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

// refuse says no in words that a program's error message will show. Many show
// the line of the status alone.
func (p *Proxy) refuse(c net.Conn, d Decision) {
	if d.Time.IsZero() {
		d.Time = time.Now()
	}
	p.decided(d)
	status, text := words(d)
	hint := ""
	if p.cfg.Hint != "" && (d.Reason == ReasonNotListed || d.Reason == ReasonAddress) {
		hint = "\n" + p.cfg.Hint
	}
	_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Refused: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s%s\n",
		status, text, d.Reason, len(text)+len(hint)+1, text, hint)
	linger(c)
}

func words(d Decision) (status int, text string) {
	where := join(d.Host, d.Port)
	switch d.Reason {
	case ReasonMalformed:
		return http.StatusBadRequest, "this proxy answers CONNECT host:port and plain requests for http:// URLs"
	case ReasonNotListed:
		return http.StatusForbidden, where + " is not on the list of allowed hosts"
	case ReasonAddress:
		return http.StatusForbidden, where + " leads to an address of a private network, which is not on the list"
	case ReasonResolve:
		return http.StatusBadGateway, where + ": the name cannot be resolved"
	case ReasonConnect:
		return http.StatusBadGateway, where + " does not answer"
	case ReasonBudget:
		return http.StatusTooManyRequests, "the network budget is used up"
	case ReasonName:
		return http.StatusForbidden, "this connection leads to " + where + " and to no other host"
	default:
		return http.StatusForbidden, where + ": " + string(d.Reason)
	}
}
