package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// bind gives a socket of the jail's network an address that takes a privilege
// there: a port below 1024. The kernel grants it to this process because the
// jail's user namespace is its child, and no process inside needs the privilege.
func (p *Process) bind(address string, socket *os.File) error {
	if !slices.Contains(p.spec.Listen, address) {
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

// answerBind binds the one socket that came with the message, and says how
// that went.
func answerBind(c *net.UnixConn, bind func(string, *os.File) error, address string, sockets []*os.File) error {
	defer func() {
		for _, f := range sockets {
			f.Close()
		}
	}()
	if len(sockets) != 1 {
		return fmt.Errorf("%d sockets to bind to %q", len(sockets), address)
	}
	var number syscall.Errno
	if err := bind(address, sockets[0]); err != nil && !errors.As(err, &number) {
		return err
	}
	_, err := c.Write(strconv.AppendUint(nil, uint64(number), 10))
	return err
}

// adopt takes the sockets that came out over, in the order of Spec.Listen and
// the one for requests last.
func (p *Process) adopt(sockets []*os.File) (err error) {
	defer func() {
		for _, f := range sockets {
			f.Close()
		}
	}()
	want := len(p.spec.Listen)
	if p.spec.Dial {
		want++
	}
	if len(sockets) != want {
		return fmt.Errorf("%d sockets came out instead of %d", len(sockets), want)
	}
	for i, address := range p.spec.Listen {
		if err := p.adoptOne(address, sockets[i]); err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
	}
	if p.spec.Dial {
		p.jail.connector, err = newConnector(sockets[want-1])
	}
	return err
}

func (p *Process) adoptOne(address string, socket *os.File) error {
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

// closePorts ends what leads in and out of the jail.
func (p *Process) closePorts() {
	for _, l := range p.listeners {
		l.Close()
	}
	for _, c := range p.packets {
		c.Close()
	}
	if p.jail.connector != nil {
		p.jail.connector.close()
	}
}
