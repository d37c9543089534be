// Package address knows the addresses that a program must not connect to when others
// choose where it connects: an agent, the owner of a webhook, whoever answers for a name.
// It judges addresses and never names, so callers ask it for each connection, after the
// name was looked up.
package address

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// special are networks that lead to this host, to its neighbours, to the
// machine's metadata or nowhere, also in the forms in which IPv6 carries an
// IPv4 address: compatible, translated (64:ff9b::, ::ffff:0:), 6to4, Teredo.
// From the registries of special addresses (RFC 6890) and, for 168.63.129.16,
// from the one provider whose metadata has an ordinary address.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
	"::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2002::/16", "fc00::/7", "fe80::/10",
	"fec0::/10", "ff00::/8",
)

func prefixes(list ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// Special reports whether an address is one of those, or this host's own, and the
// network that makes it so.
func Special(a netip.Addr) (netip.Prefix, bool) {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return netip.Prefix{}, true
	}
	if i := slices.IndexFunc(special, func(p netip.Prefix) bool { return p.Contains(a) }); i >= 0 {
		return special[i], true
	}
	alone := netip.PrefixFrom(a, a.BitLen())
	return alone, tunnelled(a) || slices.Contains(own.addresses(), a)
}

// tunnelled reports whether an IPv6 address carries an IPv4 one in its lower
// half, as ISATAP has it (RFC 5214, 6.1), in whatever network.
func tunnelled(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// own are the addresses of this host, read again when they are old.
var own ownAddresses

type ownAddresses struct {
	mu   sync.Mutex
	list []netip.Addr // guarded by mu
	read time.Time    // guarded by mu
}

func (o *ownAddresses) addresses() []netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.read) < 10*time.Second {
		return o.list
	}
	// The old list serves where the new one cannot be read.
	if all, err := net.InterfaceAddrs(); err == nil {
		o.list = nil
		for _, a := range all {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					o.list = append(o.list, ip.Unmap())
				}
			}
		}
		o.read = time.Now()
	}
	return o.list
}
