package jailinit

import (
	"bytes"
	"errors"
	"strconv"
	"syscall"
)

var errAddress = errors.New("malformed address")

// parseAddress reads an address and a port as package net/netip writes them;
// that one is initialised later than this package. Zones do not occur in jails.
func parseAddress(s string) (family int, sa syscall.Sockaddr, err error) {
	colon := bytes.LastIndexByte([]byte(s), ':')
	if colon < 0 {
		return 0, nil, errAddress
	}
	number, err := parseNumber([]byte(s[colon+1:]))
	if err != nil || number > 65535 {
		return 0, nil, errAddress
	}
	port := int(number)
	if inner, ok := cutPrefix(s[:colon], "["); ok {
		end := len(inner) - 1
		if end < 0 || inner[end] != ']' {
			return 0, nil, errAddress
		}
		a, ok := parse6(inner[:end])
		if !ok {
			return 0, nil, errAddress
		}
		return syscall.AF_INET6, &syscall.SockaddrInet6{Port: port, Addr: a}, nil
	}
	a, ok := parse4(s[:colon])
	if !ok {
		return 0, nil, errAddress
	}
	return syscall.AF_INET, &syscall.SockaddrInet4{Port: port, Addr: a}, nil
}

func parse4(s string) (a [4]byte, ok bool) {
	parts := split(s, ".")
	if len(parts) != 4 {
		return a, false
	}
	for i, p := range parts {
		n, err := parseNumber([]byte(p))
		if err != nil || n > 255 {
			return a, false
		}
		a[i] = byte(n)
	}
	return a, true
}

func parse6(s string) (a [16]byte, ok bool) {
	before, after, short := cut(s, "::")
	head, ok := groups(before)
	if !ok || !short {
		return [16]byte(append(head, a[:]...)[:16]), ok && len(head) == 16
	}
	tail, ok := groups(after)
	if !ok || len(head)+len(tail) > 14 {
		return a, false
	}
	copy(a[:], head)
	copy(a[16-len(tail):], tail)
	return a, true
}

// groups reads numbers of 16 bits between colons, of which the last may be
// written as an address of version 4.
func groups(s string) (b []byte, ok bool) {
	if s == "" {
		return nil, true
	}
	parts := split(s, ":")
	for i, p := range parts {
		if v4, is := parse4(p); is && i == len(parts)-1 {
			b = append(b, v4[:]...)
			continue
		}
		n, err := strconv.ParseUint(p, 16, 16)
		if err != nil || len(p) > 4 || p[0] == '+' {
			return nil, false
		}
		b = append(b, byte(n>>8), byte(n))
	}
	return b, len(b) <= 16
}
