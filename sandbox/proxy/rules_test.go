package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strconv"
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
		"user@a.example", "straße.example", "ｅvil.example", "127.1", "0x7f.1", "a..example", "-a.example", "a b.example", strings.Repeat("a", 64) + ".example"} {
		if _, err := ParseRules("ok.example", e); err == nil || !strings.Contains(err.Error(), e) {
			t.Errorf("%q: got %v, want an error that names it", e, err)
		}
	}
}

// Samples of RFC 3492, section 7.1, and names that are in use.
func TestNamesInOtherLetters(t *testing.T) {
	for name, want := range map[string]string{
		"bücher.example": "xn--bcher-kva.example", "BÜCHER.example.": "xn--bcher-kva.example", "münchen.de": "xn--mnchen-3ya.de",
		"他们为什么不说中文": "xn--ihqwcrb4cv8a8dqg056pqjye", "почемужеонинеговорятпорусски": "xn--b1abfaaepdrnnbgefbadotcwatmq2g4l",
		"なぜみんな日本語を話してくれないのか": "xn--n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa", "ليهمابتكلموشعربي؟": "",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "\u212aelvin.example": "kelvin.example",
		"e\u0301.example": "", "a\u200db.example": "", "a\u3002b": "", "٣.example": "xn--cib.example",
		"ＥＶＩＬ.example": "", "ﬁ.example": "", "ς.example": "", "\xff.example": "", strings.Repeat("ü", 64): "",
	} {
		if got, ok := normal(name); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %q, %v, want %q", name, got, ok, want)
		}
	}
	if !rules(t, "bücher.example").Allows("xn--bcher-kva.example", 443) {
		t.Error("a rule in other letters does not allow the name of the wire")
	}
}

// An address that leads back to this host or to its neighbours does so in all
// of its forms, and only a rule that means it lets it be reached.
func TestAddressesThatAreNotForJails(t *testing.T) {
	mine, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{
		"0.0.0.0", "127.0.0.1", "127.255.255.254", "10.77.0.5", "172.31.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200",
		"169.254.169.254", "168.63.129.16", "192.0.0.192", "198.18.0.1", "192.88.99.1", "224.0.0.251", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::10.0.0.1",
		"2002:7f00:1::1", "2002:a00:1::", "2001:0:7f00:1::", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "100::1",
		"2001:db8::5efe:7f00:1", "2001:db8::200:5efe:10.0.0.1",
	}
	for _, a := range mine {
		bad = append(bad, a.(*net.IPNet).IP.String())
	}
	everything := rules(t, "0.0.0.0/0:*", "[::/0]:*")
	for _, s := range bad {
		a := netip.MustParseAddr(s)
		if everything.reachable(a, 443) || (Rules{}).reachable(a, 443) {
			t.Errorf("%s can be reached", s)
		}
		if !rules(t, s+"/"+strconv.Itoa(a.BitLen())).reachable(a, 443) && !a.Is4In6() {
			t.Errorf("%s cannot be reached where a rule names it", s)
		}
	}
	for _, s := range []string{"203.0.113.10", "2606:4700::1111", "8.8.8.8"} {
		if !(Rules{}).reachable(netip.MustParseAddr(s), 443) {
			t.Errorf("%s cannot be reached", s)
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

// helloFor is what a client of TLS says first.
func helloFor(tb testing.TB, name string) []byte {
	tb.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() //nolint:gosec // it never gets an answer
	}()
	b := make([]byte, 4096)
	n, err := server.Read(b)
	if err != nil {
		tb.Fatal(err)
	}
	return b[:n]
}

func FuzzHello(f *testing.F) {
	whole := helloFor(f, "a.example")
	if h, err := readHello(bufio.NewReaderSize(bytes.NewReader(whole), maxHead)); err != nil || h.name != "a.example" {
		f.Fatalf("got %+v, err %v", h, err)
	}
	f.Add(whole)
	f.Add(append([]byte{22, 3, 1, 0, 1, 1, 22, 3, 1}, whole[3:]...)) // two records
	f.Add([]byte{22, 3, 3, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), maxHead)
		h, err := readHello(br)
		if err == nil && h.name != "" {
			if n, ok := normal(h.name); !ok || n != h.name {
				t.Errorf("name %q is not normal", h.name)
			}
		}
		// What was looked at is still there to be sent on.
		rest, err := io.ReadAll(br)
		if err != nil || !bytes.Equal(rest, b) {
			t.Errorf("%d of %d bytes are left, err %v", len(rest), len(b), err)
		}
	})
}
