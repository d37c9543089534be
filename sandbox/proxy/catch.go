package proxy

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"
)

// Address is where programs inside find the proxy.
const Address = "127.0.0.1:3129"

// Listen returns the addresses that a jail opens for a Proxy, as the Spec of
// a jail lists them: of the proxy itself, of the name service, and those that
// catch what knows of no proxy.
func Listen() []string {
	return []string{Address, "udp/127.0.0.1:53", "127.0.0.1:53", "0.0.0.0:80", "0.0.0.0:443"}
}

// Env returns the variables by which programs learn of a proxy at an address,
// and of its token: of curl, git, pip, npm, go and most others. What is on the
// loopback of the jail is reached without it.
func Env(address, token string) []string {
	at := url.URL{Scheme: "http", Host: address}
	if token != "" {
		at.User = url.UserPassword(user, token)
	}
	url, direct := at.String(), "localhost,.localhost,127.0.0.1,::1"
	return []string{
		"HTTP_PROXY=" + url, "HTTPS_PROXY=" + url, "ALL_PROXY=" + url, "NO_PROXY=" + direct,
		"http_proxy=" + url, "https_proxy=" + url, "all_proxy=" + url, "no_proxy=" + direct,
		"NODE_USE_ENV_PROXY=1", // node 22.21 and 24 read the others only then
	}
}

// ServeAll serves the sockets that were opened for [Listen], each for what its
// address says: port 53 is the name service, an unspecified address catches
// connections, and another is the proxy. It ends when all of them have, as
// they do when the jail ends, or with ctx.
func (p *Proxy) ServeAll(ctx context.Context, listeners []net.Listener, packets []net.PacketConn) error {
	var all sync.WaitGroup
	errs := make([]error, len(listeners)+len(packets))
	for i, l := range listeners {
		serve := p.serve
		switch a := addrPort(l.Addr()); {
		case a.Port() == 53:
			serve = p.namesTCP
		case a.Addr().IsUnspecified():
			serve = p.caught
		}
		all.Go(func() { errs[i] = p.accept(ctx, l, serve) })
	}
	for i, c := range packets {
		all.Go(func() { errs[len(listeners)+i] = p.ServeNames(ctx, c) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// caught serves a connection to an address that the name service gave out.
func (p *Proxy) caught(ctx context.Context, c *conn) {
	local := addrPort(c.LocalAddr())
	d := Decision{Time: time.Now(), Method: "TCP", Port: local.Port()}
	if d.Port == 443 {
		d.Method = "TLS"
	}
	if d.Host, _ = p.table.name(local.Addr()); d.Host == "" {
		d.Host, d.Reason = local.Addr().String(), ReasonNotListed
	}
	if c.counted == nil {
		d.Reason = ReasonBudget
	}
	br := bufio.NewReaderSize(c, maxHead)
	if d.Port == 80 {
		if d.Reason != "" {
			p.refuse(c, d)
			return
		}
		p.to(ctx, c, br, d.Host, d.Port)
		return
	}
	var up net.Conn
	if d.Reason == "" {
		up = p.open(ctx, &d)
	}
	if d.Reason != "" {
		p.alert(c, d)
		return
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { up.Close() })()
	p.join(c, br, up, d)
}

// addrPort is an address of TCP or UDP as a value.
func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.UDPAddr:
		return a.AddrPort()
	}
	return netip.AddrPort{}
}
