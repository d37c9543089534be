package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/penstock-run/penstock/sandbox/internal/connector"
	"golang.org/x/sys/unix"
)

// requester asks what stays inside for connections and terminals.
type requester = connector.Connector

// bind gives a socket of the jail's network an address that takes a privilege
// there: a port below 1024. The kernel grants it to this process because the
// jail's user namespace is its child, and no process inside needs the privilege.
func (s Spec) bind(address string, socket *os.File) error {
	if !slices.Contains(s.Listen, address) {
		return syscall.EACCES
	}
	to, _, err := parseListen(address)
	if err != nil {
		return syscall.EINVAL
	}
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var problem error
	if err := raw.Control(func(fd uintptr) {
		if problem = elsewhere(int(fd)); problem == nil {
			problem = unix.Bind(int(fd), sa)
		}
	}); err != nil {
		return err
	}
	return problem
}

// elsewhere makes sure that a socket is not one of this process's own network:
// there the privilege would open a port of the host.
func elsewhere(socket int) error {
	ns, err := unix.IoctlRetInt(socket, unix.SIOCGSKNS)
	if err != nil {
		return syscall.EACCES // it is nothing that this process owns
	}
	defer unix.Close(ns)
	var its, own unix.Stat_t
	if err := errors.Join(unix.Fstat(ns, &its), unix.Stat("/proc/self/ns/net", &own)); err != nil {
		return syscall.EACCES
	}
	if its.Dev == own.Dev && its.Ino == own.Ino {
		return syscall.EACCES
	}
	return nil
}

// adopt takes the sockets that came out over, in the order of Spec.Listen and
// the one for requests last.
func (p *ports) adopt(s Spec, sockets []*os.File) (err error) {
	defer func() {
		for _, f := range sockets {
			f.Close()
		}
	}()
	want := len(s.Listen)
	if s.Dial {
		want++
	}
	if len(sockets) != want {
		return fmt.Errorf("%d sockets came out instead of %d", len(sockets), want)
	}
	for i, address := range s.Listen {
		if err := p.adoptOne(address, sockets[i]); err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	if s.Dial {
		p.requests, err = connector.New(sockets[want-1])
	}
	return err
}

func (p *ports) adoptOne(address string, socket *os.File) error {
	to, udp, err := parseListen(address)
	if err != nil {
		return err
	}
	var at net.Addr
	if udp {
		c, err := net.FilePacketConn(socket)
		if err != nil {
			return err
		}
		p.packets = append(p.packets, c)
		at = c.LocalAddr()
	} else {
		l, err := net.FileListener(socket)
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
		at = l.Addr()
	}
	if got, err := netip.ParseAddrPort(at.String()); err != nil || got != to {
		return fmt.Errorf("the socket is bound to %v", at)
	}
	return nil
}
