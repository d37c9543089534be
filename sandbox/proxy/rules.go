package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox/address"
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
//	[2001:db8::1]:443         and [2001:db8::/32]:443
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
		return r, fmt.Errorf("%q is not a host name; write the name alone, without a scheme or path, and unusual letters as xn--", host)
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
	return r.allowsWithin(a, port, 0)
}

// allowsWithin looks for a rule of an address or of a network no larger than
// bits say.
func (r Rules) allowsWithin(a netip.Addr, port uint16, bits int) bool {
	return slices.ContainsFunc(r.list, func(x rule) bool {
		return x.prefix.IsValid() && x.prefix.Bits() >= bits && x.prefix.Contains(a.Unmap()) && x.allowsPort(port)
	})
}

// reachable reports whether a name may lead to a, and port be reached there. Addresses
// that are not for jails need a rule that names them, and "the whole Internet" does not.
func (r Rules) reachable(a netip.Addr, port uint16) bool {
	network, bad := address.Special(a)
	return !bad || network.IsValid() && r.allowsWithin(a, port, network.Bits())
}

func (x rule) allowsPort(port uint16) bool {
	return x.any || x.port == port || (x.port == 0 && (port == 80 || port == 443))
}

// normal returns the form of a name that is compared: lower case, without
// the dot at the end, in the letters of the wire. Anything that another program could read as a different
// host, such as numbers in other bases, is no name.
func normal(name string) (string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > 253 {
		return "", false
	}
	labels := strings.Split(name, ".")
	for i, l := range labels {
		l, ok := ascii(l)
		if !ok {
			return "", false
		}
		labels[i] = l
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
	name = strings.Join(labels, ".")
	return name, !numeric && len(name) <= 253
}

// target reads a host and port as the client wrote them.
func target(authority, defaultPort string) (host string, port uint16, ok bool) {
	if strings.ContainsAny(authority, "@/\\?#% \t") {
		return "", 0, false
	}
	bracketed := strings.HasPrefix(authority, "[")
	h, p, err := net.SplitHostPort(authority)
	if err != nil {
		if defaultPort == "" || bracketed != strings.HasSuffix(authority, "]") {
			return "", 0, false
		}
		h, p = strings.Trim(authority, "[]"), defaultPort
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || p[0] == '0' {
		return "", 0, false
	}
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Unmap().String(), uint16(n), a.Zone() == "" && a.Is6() == bracketed
	}
	if bracketed {
		return "", 0, false
	}
	host, ok = normal(h)
	return host, uint16(n), ok
}

func join(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
