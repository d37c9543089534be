// Package connector asks the process that stays in a jail for what can only be done
// from within: connections to servers there, and terminals.
package connector

import (
	"net"
	"net/netip"
	"path"
	"strings"
)

// A Target is an address in the form in which it goes inside.
type Target struct {
	Net     string // "tcp" or "unix"
	Address string
}

// Network returns Net.
func (t Target) Network() string { return t.Net }
func (t Target) String() string  { return t.Address }

// maxUnixPath is what the kernel has room for, with the NUL at its end.
const maxUnixPath = 107

// Targets lists what an address means inside: localhost is two addresses.
func Targets(network, address string) ([]Target, error) {
	refuse := func(why string) error { return &net.AddrError{Err: why, Addr: address} }
	switch network {
	case "unix":
		if !path.IsAbs(address) || len(address) > maxUnixPath || strings.ContainsRune(address, 0) {
			return nil, refuse("is not an absolute path of at most 107 bytes")
		}
		return []Target{{network, address}}, nil
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "" // as net.Dial reads it
	}
	addresses := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	if host != "" {
		a, err := netip.ParseAddr(host)
		switch a = a.Unmap(); {
		case err != nil || a.Zone() != "" || !a.IsLoopback() && !a.IsUnspecified():
			return nil, refuse("is not an address of the jail's own, such as 127.0.0.1:8080")
		case a.IsUnspecified() && a.Is4():
			addresses = addresses[:1]
		case a.IsUnspecified():
			addresses = addresses[1:]
		default:
			addresses = []netip.Addr{a}
		}
	}
	var found []Target
	for _, a := range addresses {
		if network == "tcp" || (network == "tcp4") == a.Is4() {
			to, err := netip.ParseAddrPort(net.JoinHostPort(a.String(), port))
			if err != nil || to.Port() == 0 {
				return nil, refuse("has no port from 1 to 65535")
			}
			found = append(found, Target{"tcp", to.String()})
		}
	}
	if found == nil {
		return nil, refuse("is not an address of network " + network)
	}
	return found, nil
}
