package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path"
	"strings"
	"syscall"
)

// Dial connects to a server inside the jail. network is "tcp", "tcp4", "tcp6"
// or "unix". The host of a TCP address is a loopback address, "localhost",
// which tries both of them, or an unspecified address, which means the
// loopback; a unix address is an absolute path in the jail's view. With
// NetworkFull, and without a jail, the loopback is the host's.
//
// The connection is made inside and its descriptor handed out: no process in
// between sees or moves a byte. The descriptor is only accepted if it is a
// connected socket of the requested kind and to the requested address.
//
// Spec.Dial has to be set. It leaves a process of jailinit inside, which has
// 1.5 MiB of memory of its own, up to 3 MiB of pages that it shares with this
// program's file, and about 6 of Limits.PIDs (threads). The program in the jail
// can kill or stop it: then Dial fails, or waits for ctx, and nothing else
// happens.
//
// Errors are of type [*net.OpError]. They wrap syscall.ECONNREFUSED if
// there is no listener, [os.ErrProcessDone] when the jail has ended, [net.ErrClosed]
// when only the process that connects has, the cause of ctx, or a
// [*FieldError] without Spec.Dial.
func (p *Process) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	targets, err := targets(network, address)
	if !p.spec.Dial {
		err = errNoDial
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	for _, t := range targets {
		var c net.Conn
		if c, err = p.dial(ctx, t); err == nil {
			return c, nil
		}
		err = &net.OpError{Op: "dial", Net: network, Addr: t, Err: err}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, err
}

var errNoDial = &FieldError{"Dial", "false", "leaves nothing inside that could connect"}

func (p *Process) dial(ctx context.Context, to target) (net.Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, err := p.jail.dial(ctx, to)
	return c, p.explain(err)
}

// explain tells the end of the jail from that of the process that answers.
func (p *Process) explain(err error) error {
	if errors.Is(err, net.ErrClosed) && p.jail.over() {
		return fmt.Errorf("the jail has ended: %w", os.ErrProcessDone)
	}
	return err
}

// A target is an address in the form in which it goes inside.
type target struct {
	network string // "tcp" or "unix"
	address string
}

func (t target) Network() string { return t.network }
func (t target) String() string  { return t.address }

// maxUnixPath is what the kernel has room for, with the NUL at its end.
const maxUnixPath = 107

func targets(network, address string) ([]target, error) {
	refuse := func(why string) error { return &net.AddrError{Err: why, Addr: address} }
	switch network {
	case "unix":
		if !path.IsAbs(address) || len(address) > maxUnixPath || strings.ContainsRune(address, 0) {
			return nil, refuse("is not an absolute path of at most 107 bytes")
		}
		return []target{{network, address}}, nil
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
	var found []target
	for _, a := range addresses {
		if network == "tcp" || (network == "tcp4") == a.Is4() {
			to, err := netip.ParseAddrPort(net.JoinHostPort(a.String(), port))
			if err != nil || to.Port() == 0 {
				return nil, refuse("has no port from 1 to 65535")
			}
			found = append(found, target{"tcp", to.String()})
		}
	}
	if found == nil {
		return nil, refuse("is not an address of network " + network)
	}
	return found, nil
}
