package jailinit

import (
	"net/netip"
	"syscall"
	"testing"
)

// FuzzAddress compares with what the runner reads the same text with.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"127.0.0.1:80", "[::1]:80", "0.0.0.0:0", "[::]:65535", "[::ffff:1.2.3.4]:1", "[1:2:3:4:5:6:7:8]:9", "[1::]:2", "[fe80::1:0:0:2]:3",
		"", ":", "1.2.3:4", "1.2.3.4.5:6", "01.2.3.4:5", "1.2.3.256:4", "1.2.3.4:65536", "1.2.3.4:+5", "1.2.3.4:", "[::1:80", "::1]:80", "[:::]:1",
		"[1:2:3:4:5:6:7]:8", "[1:2:3:4:5:6:7::]:8", "[1:2:3:4:5:6:7:8:9]:1", "[12345::]:6", "[::g]:1", "[1::2::3]:4", "[::1.2.3.4:5]:6", "[1:2:3:4:5:6:7:1.2.3.4]:5",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := netip.ParseAddrPort(s)
		family, sa, ours := parseAddress(s)
		if ours != nil {
			// Of what may be written in several ways one is enough.
			if err == nil && want.Addr().Zone() == "" && want.String() == s {
				t.Fatalf("%q: %v", s, ours)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q was accepted, and is no address: %v", s, err)
		}
		var got netip.AddrPort
		switch a := sa.(type) {
		case *syscall.SockaddrInet4:
			got = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *syscall.SockaddrInet6:
			got = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		}
		if got != want || (family == syscall.AF_INET) != want.Addr().Is4() {
			t.Fatalf("%q: got %v of family %d, want %v", s, got, family, want)
		}
	})
}
