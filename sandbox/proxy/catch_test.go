package proxy

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A disguised listener says that its connections came to another address, as
// those of a jail's port 443 do. The tests of package bwrap have such a jail.
type disguised struct {
	net.Listener
	port   uint16
	at     *atomic.Pointer[netip.Addr]
	listen netip.Addr
}

type disguisedConn struct {
	*net.TCPConn
	local netip.AddrPort
}

func (c disguisedConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

func (d disguised) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.listen, d.port))
}

func (d disguised) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return disguisedConn{c.(*net.TCPConn), netip.AddrPortFrom(*d.at.Load(), d.port)}, nil
}

// A catcher is a proxy with all of its sockets, and the address inside that
// the next connections go to.
type catcher struct {
	*world
	to              atomic.Pointer[netip.Addr]
	udp, dns        string
	plain80, tls443 string
	other           string
}

func newCatcher(t *testing.T, cfg Config) *catcher {
	t.Helper()
	c := &catcher{}
	c.to.Store(&netip.Addr{})
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names, plain, secure, other := listen(), listen(), listen(), listen()
	c.udp, c.dns = packets.LocalAddr().String(), names.Addr().String()
	c.plain80, c.tls443, c.other = plain.Addr().String(), secure.Addr().String(), other.Addr().String()
	any, lo := netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.1")
	c.world = newWorld(t, cfg, func(ctx context.Context, p *Proxy) error {
		return p.ServeAll(ctx, []net.Listener{
			disguised{names, 53, &c.to, lo}, disguised{plain, 80, &c.to, any}, disguised{secure, 443, &c.to, any}, disguised{other, 22, &c.to, any},
		}, []net.PacketConn{packets})
	})
	return c
}

// ask sends a question by UDP and returns the code and the address of the answer.
func (c *catcher) ask(t *testing.T, name string, kind uint16) (code int, a netip.Addr) {
	t.Helper()
	conn, err := net.Dial("udp", c.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(query(name, kind)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return readAnswer(t, name, kind, b[:n])
}

func query(name string, kind uint16) []byte {
	b := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for l := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(l))), l...)
	}
	return append(b, 0, byte(kind>>8), byte(kind), 0, 1)
}

func readAnswer(t *testing.T, name string, kind uint16, b []byte) (code int, a netip.Addr) {
	t.Helper()
	asked := query(name, kind)
	if len(b) < len(asked) || b[0] != 0x12 || b[1] != 0x34 || b[2]&0x80 == 0 || string(b[12:len(asked)]) != string(asked[12:]) {
		t.Fatalf("%s: %x does not answer %x", name, b, asked)
	}
	rest := b[len(asked):]
	if int(b[7]) > 0 {
		a = netip.AddrFrom4([4]byte(rest[len(rest)-4:]))
	}
	return int(b[3] & 15), a
}

func TestTheNameServiceKnowsWhatIsAllowed(t *testing.T) {
	c := newCatcher(t, Config{Rules: rules(t, "allowed.test", "*.wild.test", "ssh.test:22", "plain.test:80", "203.0.113.10:443")})
	first := map[string]netip.Addr{}
	for _, name := range []string{"allowed.test", "a.wild.test", "b.wild.test", "plain.test"} {
		code, a := c.ask(t, name, 1)
		if code != 0 || !netip.MustParsePrefix("127.1.0.0/16").Contains(a) {
			t.Errorf("%s: got code %d and %v", name, code, a)
		}
		for other, b := range first {
			if a == b {
				t.Errorf("%s has the address of %s", name, other)
			}
		}
		first[name] = a
		if code, a := c.ask(t, name, 28); code != 0 || a.IsValid() {
			t.Errorf("%s: got code %d and %v for IPv6, want nothing of the kind", name, code, a)
		}
	}
	if _, a := c.ask(t, "ALLOWED.Test", 1); a != first["allowed.test"] {
		t.Errorf("in other letters: got %v, want %v", a, first["allowed.test"])
	}
	if code, a := c.ask(t, "app.localhost", 1); code != 0 || a.String() != "127.0.0.1" {
		t.Errorf("localhost: got code %d and %v", code, a)
	}
	for _, name := range []string{"evil.test", "wild.test", "ssh.test", "xallowed.test", "allowed.test.evil.test", "203.0.113.10", "127.1", "a b.wild.test",
		"evil\x00.wild.test", strings.Repeat("a", 63) + ".evil.test", "1.1.1.127.in-addr.arpa", "-.wild.test"} {
		for _, kind := range []uint16{1, 28, 16, 65} {
			if code, a := c.ask(t, name, kind); code != dnsNotFound || a.IsValid() {
				t.Errorf("%q: got code %d and %v, want none", name, code, a)
			}
		}
		if d := c.last(); d.Allowed || d.Method != "DNS" || d.Reason != ReasonNotListed && d.Reason != ReasonMalformed {
			t.Errorf("%q: decided %+v", name, d)
		}
	}
	dotted := query("aXwild.test", 1)
	dotted[14] = '.' // in a label: another name than the one with a dot between labels
	if got := New(Config{Rules: rules(t, "*.wild.test")}).reply(t.Context(), dotted); got[3]&15 != dnsNotFound {
		t.Errorf("a dot in a label: got %x", got)
	}
	if n := c.resolved.Load(); n != 0 {
		t.Errorf("%d questions left the jail", n)
	}
}

func TestTheNameServiceByTCP(t *testing.T) {
	c := newCatcher(t, Config{Rules: rules(t, "allowed.test")})
	conn, err := net.Dial("tcp", c.dns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	for _, name := range []string{"allowed.test", "evil.test", "allowed.test"} {
		q := query(name, 1)
		if _, err := conn.Write(append([]byte{0, byte(len(q))}, q...)); err != nil {
			t.Fatal(err)
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		if code, a := readAnswer(t, name, 1, b); (code == 0) != (name == "allowed.test") || a.IsValid() != (code == 0) {
			t.Errorf("%s: got code %d and %v", name, code, a)
		}
	}
}

func TestMessagesThatAreNoQuestions(t *testing.T) {
	p := New(Config{Rules: Rules{}})
	q := query("evil.test", 1)
	with := func(change func(b []byte) []byte) []byte { return change(append([]byte(nil), q...)) }
	for what, c := range map[string]struct {
		message []byte
		code    int // -1: silence
	}{
		"nothing":       {nil, -1},
		"half a header": {q[:11], -1},
		"an answer":     {with(func(b []byte) []byte { b[2] |= 0x80; return b }), -1},
		"an update":     {with(func(b []byte) []byte { b[2] |= 5 << 3; return b }), dnsNotImplemented},
		"no question":   {with(func(b []byte) []byte { b[5] = 0; return b }), dnsFormat},
		"two questions": {with(func(b []byte) []byte { b[5] = 2; return b }), dnsFormat},
		"compressed":    {with(func(b []byte) []byte { b[12] = 0xc0; return b }), dnsFormat},
		"long labels":   {append(with(func(b []byte) []byte { b[12] = 64; return b }), make([]byte, 80)...), dnsFormat},
		"cut":           {q[:len(q)-1], dnsFormat},
		"cut in a name": {q[:14], dnsFormat},
		"too long":      {query(strings.Repeat(strings.Repeat("a", 62)+".", 4)+"aaa", 1), dnsFormat},
		"another class": {with(func(b []byte) []byte { b[len(b)-1] = 3; return b }), dnsNotFound},
		"with more":     {append(q, 1, 2, 3), dnsNotFound},
	} {
		got := p.reply(t.Context(), c.message)
		if (got == nil) != (c.code < 0) || got != nil && int(got[3]&15) != c.code {
			t.Errorf("%s: got %x, want code %d", what, got, c.code)
		}
	}
}

func TestTheTableIsBounded(t *testing.T) {
	c := &table{}
	for i := range maxTable {
		name := fmt.Sprintf("n%d.test", i)
		a, ok := c.address(name)
		if back, known := c.name(a); !ok || !known || back != name {
			t.Fatalf("%s: got %v, which is %q", name, a, back)
		}
	}
	if a, ok := c.address("more.test"); ok {
		t.Errorf("one more has got %v", a)
	}
	if a, ok := c.address("n7.test"); !ok || a.String() != "127.1.0.8" {
		t.Errorf("an old one has got %v", a)
	}
	for _, s := range []string{"127.0.0.1", "127.1.0.0", "127.1.255.255", "127.2.0.1", "10.1.0.1", "::1"} {
		if name, ok := c.name(netip.MustParseAddr(s)); ok {
			t.Errorf("%s is %q", s, name)
		}
	}
}

// dial connects to what the name service says for a name.
func (c *catcher) dial(t *testing.T, name, door string) net.Conn {
	t.Helper()
	_, a := c.ask(t, name, 1)
	if !a.IsValid() {
		a = netip.MustParseAddr(name)
	}
	c.to.Store(&a)
	conn, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	return conn
}

func TestWhatIsCaughtGoesWhereItsNameLeads(t *testing.T) {
	c := newCatcher(t, Config{Rules: rules(t, "allowed.test", "plain.test:80", "loop.test", "ssh.test:22", "ssh.test:443", "127.1.77.77:443")})
	if err := handshake("allowed.test")(c.dial(t, "allowed.test", c.tls443)); err != nil || !c.last().Allowed || c.last().Method != "TLS" {
		t.Errorf("TLS for the name: %v, decided %+v", err, c.last())
	}
	for _, x := range []struct {
		what, name string
		speak      func(net.Conn) error
		reason     Reason
		says       string
	}{
		{"another name", "allowed.test", handshake("evil.test"), ReasonName, "unrecognized name"},
		{"no name", "allowed.test", handshake(""), ReasonName, "unrecognized name"},
		{"an address that nobody gave out", "127.1.77.77", handshake("allowed.test"), ReasonNotListed, "access denied"},
		{"the jail's own loopback", "127.0.0.1", handshake("localhost"), ReasonNotListed, "access denied"},
		{"a port that is not allowed", "plain.test", handshake("plain.test"), ReasonNotListed, "access denied"},
		{"a private address", "loop.test", handshake("loop.test"), ReasonAddress, "access denied"},
		{"no TLS", "allowed.test", func(conn net.Conn) error {
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
			_, err := conn.Read(make([]byte, 1))
			return err
		}, ReasonNotTLS, "EOF"},
	} {
		err := x.speak(c.dial(t, x.name, c.tls443))
		if err == nil || c.last().Reason != x.reason || c.last().Allowed || !strings.Contains(err.Error(), x.says) && x.reason != ReasonNotTLS {
			t.Errorf("%s: got %v, decided %+v, want %s and %q", x.what, err, c.last(), x.reason, x.says)
		}
	}
	if err := handshake("ssh.test")(c.dial(t, "ssh.test", c.other)); err != nil || c.last().Port != 22 {
		t.Errorf("another port: %v, decided %+v", err, c.last())
	}
}

func TestRequestsThatAreCaughtAreDecidedEach(t *testing.T) {
	c := newCatcher(t, Config{Rules: rules(t, "allowed.test", "secure.test:443"), Hint: "ask somebody"})
	conn := c.dial(t, "allowed.test", c.plain80)
	br := bufio.NewReader(conn)
	for _, host := range []string{"allowed.test", "ALLOWED.test:80"} {
		fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", host)
		if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%s: got %q, err %v, want to go on", host, line, err)
		}
		_, _ = br.ReadString('\n')
		fmt.Fprint(conn, "body")
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasPrefix(string(b), "POST allowed.test/") || !strings.HasSuffix(string(b), "/x body") {
			t.Errorf("%s: got %q, err %v", host, b, err)
		}
	}
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "403") || c.last().Reason != ReasonName {
		t.Errorf("another host: got %q, err %v, decided %+v", line, err, c.last())
	}
	for request, want := range map[string]Reason{
		"GET / HTTP/1.1\r\n": ReasonMalformed, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n": ReasonMalformed,
		"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n": ReasonMalformed, "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n": ReasonName,
		"OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n": ReasonMalformed,
	} {
		conn := c.dial(t, "allowed.test", c.plain80)
		fmt.Fprint(conn, request+"\r\n")
		if b, _ := io.ReadAll(conn); !strings.Contains(string(b), " 40") || c.last().Reason != want {
			t.Errorf("%q: got %q, decided %+v, want %s", request, b, c.last(), want)
		}
	}
	refused := c.dial(t, "secure.test", c.plain80)
	fmt.Fprint(refused, "GET / HTTP/1.1\r\nHost: secure.test\r\n\r\n")
	if b, _ := io.ReadAll(refused); !strings.Contains(string(b), "403 secure.test:80 is not on the list") || !strings.Contains(string(b), "ask somebody") {
		t.Errorf("a port that is not allowed: got %q", b)
	}
}

func TestTunnelsToPort80CarryRequestsForTheHost(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test")})
	for host, want := range map[string]string{"allowed.test": "200", "evil.test": "403"} {
		err := w.inTunnel(t, "allowed.test:80", func(c net.Conn) error {
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, want) {
				return fmt.Errorf("got %q, err %w", line, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A client hello that hides the name it is for.
func TestHiddenNamesAreRefused(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test")})
	err := w.inTunnel(t, "allowed.test:443", func(c net.Conn) error {
		return tls.Client(c, &tls.Config{ //nolint:gosec // the test's own server
			ServerName: "allowed.test", InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
			EncryptedClientHelloConfigList: hidingConfig(t, "allowed.test"),
		}).Handshake()
	})
	if err == nil || w.last().Reason != ReasonName {
		t.Errorf("got %v and reason %q", err, w.last().Reason)
	}
}

// hidingConfig is what a name's zone publishes for clients that hide the name
// (RFC 9849, section 4).
func hidingConfig(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sized := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	content := append([]byte{1, 0, 0x20}, sized(key.PublicKey().Bytes())...)
	content = append(content, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	content = append(append(content, public...), 0, 0)
	return sized(append([]byte{extensionHidden >> 8, extensionHidden & 0xff}, sized(content)...))
}

// What speaks another protocol is not kept waiting.
func TestOtherProtocolsAreRefusedAtOnce(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test")})
	for _, first := range []string{"\x05\x01\x00", "\x04\x01\x01\xbb\x7f\x00\x00\x01", "\x16\x03\x01", "\n"} {
		if got := w.say(t, first); !strings.Contains(got, "400") {
			t.Errorf("%q: got %q", first, got)
		}
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add(query("a.example", 1))
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	p := New(Config{Rules: rules(f, "*.example", "a.example")})
	f.Fuzz(func(t *testing.T, b []byte) {
		q, code, ok := parseQuestion(b)
		out := p.reply(t.Context(), b)
		if (out == nil) == ok || len(out) > len(b)+16+dnsHeader {
			t.Fatalf("%x: got %x", b, out)
		}
		if !ok || code != 0 {
			return
		}
		// Our own answer, seen as a question, has the same one.
		out[2] &= 0x7f
		again, code, ok := parseQuestion(out)
		if !ok || code != 0 || again.name != q.name || again.kind != q.kind || again.id != q.id {
			t.Errorf("%x became %x", b, out)
		}
		if out[7] == 1 {
			name, _ := normal(q.name)
			if !p.cfg.Rules.Allows(name, 443) && !strings.HasSuffix(name, "localhost") || len(p.table.names) > maxTable {
				t.Errorf("an address for %q", q.name)
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(strings.NewReader(string(b)), maxHead)
		req, err := readRequest(br)
		if err != nil {
			return
		}
		head, _, _ := strings.Cut(string(b), "\r\n\r\n")
		if n := strings.Count(strings.ToLower(head), "\r\nhost:"); n > 1 || strings.ContainsRune(head, 0) {
			t.Errorf("%q was read", head)
		}
		if len(req.Header["Content-Length"]) > 0 && len(req.TransferEncoding) > 0 {
			t.Errorf("%q has two lengths", head)
		}
	})
}
