package jailinit

import (
	"errors"
	"syscall"
)

// listen opens the sockets with bare calls: package net would start a poller
// in a process that lives for two milliseconds.
func listen(addresses []string) ([]int, error) {
	var sockets []int
	for _, a := range addresses {
		fd, err := listenOne(a)
		if err != nil {
			return nil, &stepError{"listen", a, err}
		}
		sockets = append(sockets, fd)
	}
	return sockets, nil
}

func listenOne(address string) (int, error) {
	rest, udp := cutPrefix(address, "udp/")
	family, sa, err := parseAddress(rest)
	if err != nil {
		return -1, err
	}
	kind := syscall.SOCK_STREAM
	if udp {
		kind = syscall.SOCK_DGRAM
	}
	fd, err := syscall.Socket(family, kind|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if family == syscall.AF_INET6 {
		// "[::]" next to "0.0.0.0" is then no conflict, whatever the host's default.
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 1); err != nil {
			return -1, err
		}
	}
	if !udp { // where it would let two sockets share one address
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
			return -1, err
		}
	}
	if err := bind(fd, sa, address); err != nil {
		return -1, err
	}
	if udp {
		return fd, nil
	}
	return fd, syscall.Listen(fd, syscall.SOMAXCONN)
}

// bind asks the runner for what this process has no privilege to do. The
// runner owns the user namespace that the jail's network belongs to, and so
// has every privilege over that network; no process in the jail ever has one.
func bind(fd int, sa syscall.Sockaddr, address string) error {
	err := syscall.Bind(fd, sa)
	if !errors.Is(err, syscall.EACCES) {
		return err
	}
	if err := syscall.Sendmsg(controlFD, []byte("bind\x00"+address), syscall.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	answer := make([]byte, 16)
	n, err := syscall.Read(controlFD, answer)
	if err != nil {
		return err
	}
	number, err := parseNumber(answer[:n])
	if err != nil || number == 0 {
		return err
	}
	return syscall.Errno(number)
}
