package proxy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	r := rules(t, "Registry.Example", "*.cdn.example:443", "any.example:*", "db.example:5432", "10.0.0.0/8:5432", "192.0.2.7", "[2001:db8::1]:443", "2001:db8::2")
	for _, c := range []struct {
		host string
		port uint16
		want bool
	}{
		{"registry.example", 443, true}, {"registry.example", 80, true}, {"registry.example", 22, false},
		{"a.registry.example", 443, false}, {"xregistry.example", 443, false},
		{"a.cdn.example", 443, true}, {"a.b.cdn.example", 443, true}, {"cdn.example", 443, false}, {"a.cdn.example", 80, false},
		{"any.example", 9, true}, {"db.example", 5432, true}, {"db.example", 443, false},
		{"10.1.2.3", 5432, true}, {"10.1.2.3", 443, false}, {"11.1.2.3", 5432, false},
		{"192.0.2.7", 443, true}, {"2001:db8::1", 443, true}, {"2001:db8::1", 80, false}, {"2001:db8::2", 80, true},
	} {
		if got := r.Allows(c.host, c.port); got != c.want {
			t.Errorf("%s:%d: got %v", c.host, c.port, got)
		}
	}
	if (Rules{}).Allows("registry.example", 443) {
		t.Error("the zero value allows something")
	}
}

func TestRulesThatAreNone(t *testing.T) {
	for _, e := range []string{"", "*", "*.", "https://a.example", "a.example/path", "a.example:0", "a.example:65536", "a.example:x",
		"user@a.example", "bücher.example", "127.1", "0x7f.1", "a..example", "-a.example", "a b.example", strings.Repeat("a", 64) + ".example"} {
		if _, err := ParseRules("ok.example", e); err == nil || !strings.Contains(err.Error(), e) {
			t.Errorf("%q: got %v, want an error that names it", e, err)
		}
	}
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"a.example:443", "[::1]:80", "127.1:80", "a@b:1", "0x7f000001:80", "a.example.:443", "[::ffff:1.2.3.4]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, port, ok := target(s, "")
		if !ok {
			return
		}
		again, samePort, ok := target(join(host, port), "")
		if !ok || again != host || samePort != port {
			t.Errorf("%q became %q, which becomes %q", s, join(host, port), again)
		}
		if a, err := netip.ParseAddr(host); err == nil && a.Is4In6() {
			t.Errorf("%q is an IPv4 address in disguise", host)
		}
		if host != strings.ToLower(host) || strings.ContainsAny(host, "@/\\#?\x00\r\n ") {
			t.Errorf("%q is not normal", host)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add([]byte{3, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err == nil && h.name != "" {
			if n, ok := normal(h.name); !ok || n != h.name {
				t.Errorf("name %q is not normal", h.name)
			}
		}
	})
}
