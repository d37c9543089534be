package connector

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/penstock-run/penstock/sandbox/jailinit"
	"golang.org/x/sys/unix"
)

// Dial has the connection made inside and checks what comes out.
func (a *Connector) Dial(ctx context.Context, to Target) (net.Conn, error) {
	f, err := a.ask(ctx, jailinit.Request{Verb: jailinit.VerbDial, Args: []string{to.Net, to.Address}})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkConnected(f, to); err != nil {
		return nil, fmt.Errorf("what came out of the jail is not the connection: %w", err)
	}
	return net.FileConn(f)
}

// checkConnected looks at what a descriptor really is.
func checkConnected(f *os.File, to Target) error {
	return control(f, func(fd int) error { return connected(fd, to) })
}

func connected(fd int, to Target) error {
	family, protocol := unix.AF_UNIX, 0
	if to.Net == "tcp" {
		family, protocol = unix.AF_INET6, unix.IPPROTO_TCP
		if netip.MustParseAddrPort(to.Address).Addr().Is4() {
			family = unix.AF_INET
		}
	}
	for _, want := range []struct {
		name   string
		option int
		value  int
	}{
		{"family", unix.SO_DOMAIN, family}, {"type", unix.SO_TYPE, unix.SOCK_STREAM},
		{"protocol", unix.SO_PROTOCOL, protocol}, {"listening", unix.SO_ACCEPTCONN, 0},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return err
		}
		if got != want.value {
			return fmt.Errorf("%s %d instead of %d", want.name, got, want.value)
		}
	}
	peer, err := unix.Getpeername(fd)
	if err != nil {
		return err
	}
	var at netip.AddrPort
	switch sa := peer.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	default: // a server names its unix socket as it likes
		return nil
	}
	if at.String() != to.Address {
		return fmt.Errorf("it leads to %v", at)
	}
	return nil
}
