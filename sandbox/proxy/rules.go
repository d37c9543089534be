package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Rules are the hosts that may be reached. The zero value names none.
type Rules struct{ list []rule }

type rule struct {
	host   string       // exact, in lower case; "" for a prefix
	suffix string       // ".example.com" of "*.example.com"
	prefix netip.Prefix // of addresses
	port   uint16       // 0: ports 80 and 443
	any    bool         // every port
}

// ParseRules reads entries of these forms; without a port they mean 80 and
// 443, and the port * means all.
//
//	registry.example          one name
//	*.registry.example:443    every name below, not the name itself
//	192.0.2.7:5432            an address
//	10.0.0.0/8:*              a network, also for names that lead there
//	[2001:db8::1]:443
func ParseRules(entries ...string) (Rules, error) {
	var r Rules
	for _, e := range entries {
		parsed, err := parseRule(e)
		if err != nil {
			return Rules{}, fmt.Errorf("allowed host %q: %w", e, err)
		}
		r.list = append(r.list, parsed)
	}
	return r, nil
}

func parseRule(entry string) (rule, error) {
	var r rule
	host := entry
	if a, err := netip.ParseAddr(entry); err == nil && a.Is6() {
		host = "[" + entry + "]"
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") && !strings.Contains(host[i:], "/") && (strings.Count(host, ":") == 1 || host[0] == '[') {
		port := host[i+1:]
		host = host[:i]
		n, err := strconv.ParseUint(port, 10, 16)
		switch {
		case port == "*":
			r.any = true
		case err != nil || n == 0:
			return r, fmt.Errorf("port %q is not a number from 1 to 65535, or *", port)
		default:
			r.port = uint16(n)
		}
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if prefix, err := netip.ParsePrefix(host); err == nil {
		r.prefix = prefix.Masked()
		return r, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		r.prefix = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		return r, nil
	}
	name, wild := strings.CutPrefix(host, "*.")
	name, ok := normal(name)
	if !ok {
		return r, fmt.Errorf("%q is not a host name; write the name alone, without a scheme or path, other letters as xn--", host)
	}
	if wild {
		r.suffix = "." + name
	} else {
		r.host = name
	}
	return r, nil
}

// Allows reports whether a rule names host, in its normal form, and port.
func (r Rules) Allows(host string, port uint16) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return r.allowsAddress(a, port)
	}
	return slices.ContainsFunc(r.list, func(x rule) bool {
		return x.allowsPort(port) && ((x.host != "" && host == x.host) || (x.suffix != "" && strings.HasSuffix(host, x.suffix)))
	})
}

func (r Rules) allowsAddress(a netip.Addr, port uint16) bool {
	return slices.ContainsFunc(r.list, func(x rule) bool {
		return x.prefix.IsValid() && x.prefix.Contains(a.Unmap()) && x.allowsPort(port)
	})
}

func (x rule) allowsPort(port uint16) bool {
	return x.any || x.port == port || (x.port == 0 && (port == 80 || port == 443))
}

// normal returns the form of a name that is compared: lower case, without
// the dot at the end. Anything that another program could read as a different
// host, such as numbers in other bases, is no name.
func normal(name string) (string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > 253 {
		return "", false
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return "", false
		}
		for _, c := range []byte(l) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", false
			}
		}
	}
	last := labels[len(labels)-1]
	numeric := strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == ""
	return name, !numeric
}

// target reads a host and port as the client wrote them.
func target(authority, defaultPort string) (host string, port uint16, ok bool) {
	if strings.ContainsAny(authority, "@/\\?#% \t") {
		return "", 0, false
	}
	h, p, err := net.SplitHostPort(authority)
	if err != nil {
		if defaultPort == "" {
			return "", 0, false
		}
		h, p = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]"), defaultPort
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || p[0] == '0' {
		return "", 0, false
	}
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Unmap().String(), uint16(n), a.Zone() == ""
	}
	host, ok = normal(h)
	return host, uint16(n), ok
}

func join(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// notForJails are networks that lead to this host, to its neighbours or
// nowhere. 64:ff9b:: and 2002:: carry IPv4 addresses inside.
var notForJails = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2002::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

func prefixes(list ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func forbidden(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return !a.IsValid() || slices.ContainsFunc(notForJails, func(p netip.Prefix) bool { return p.Contains(a) }) ||
		slices.Contains(own.addresses(), a)
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
