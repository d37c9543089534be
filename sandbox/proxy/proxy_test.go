package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names is what the test's name service knows.
var names = map[string][]string{
	"allowed.test": {"203.0.113.10"}, "evil.test": {"203.0.113.11"}, "other.allowed.test": {"203.0.113.12"},
	"loop.test": {"127.0.0.1"}, "meta.test": {"169.254.169.254"}, "priv.test": {"10.77.0.5"},
	"mixed.test": {"203.0.113.10", "127.0.0.1"}, "mapped.test": {"::ffff:127.0.0.1"}, "nat64.test": {"64:ff9b::7f00:1"},
	"v6.test": {"2001:db8::1"}, "unspecified.test": {"0.0.0.0"}, "ula.test": {"fd00::1"}, "ssh.test": {"203.0.113.22"},
	"plain.test": {"203.0.113.10"}, "secure.test": {"203.0.113.10"},
}

var errEnd = errors.New("the test is over")

// A world is a proxy between a client and servers that have any address.
type world struct {
	address string // of the proxy
	plain   string // of the server behind port 80 of all addresses
	secure  string // of the server behind all other ports

	resolved atomic.Int32 // questions to the name service

	mu        sync.Mutex
	decisions []Decision // guarded by mu
	dialled   []string   // guarded by mu
}

// newWorld serves a listener, and whatever else more serves.
func newWorld(t *testing.T, cfg Config, more ...func(context.Context, *Proxy) error) *world {
	t.Helper()
	w := &world{}
	answer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s %s%s %s", r.Method, r.Host, r.URL.Path, body)
	})
	plain, secure := httptest.NewServer(answer), httptest.NewUnstartedServer(answer)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are meant to fail
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	w.plain, w.secure = plain.Listener.Addr().String(), secure.Listener.Addr().String()
	cfg.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		w.resolved.Add(1)
		var all []netip.Addr
		for _, s := range names[host] {
			all = append(all, netip.MustParseAddr(s))
		}
		return all, nil
	}
	cfg.Dial = func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
		w.mu.Lock()
		w.dialled = append(w.dialled, a.String())
		w.mu.Unlock()
		to := w.secure
		if a.Port() == 80 {
			to = w.plain
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	}
	cfg.Hooks.Decided = func(d Decision) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.decisions = append(w.decisions, d)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	p := New(cfg)
	serve := append(more, func(ctx context.Context, p *Proxy) error { return p.Serve(ctx, l) })
	served := make(chan error)
	ctx, end := context.WithCancelCause(context.Background())
	for _, s := range serve {
		go func() { served <- s(ctx, p) }()
	}
	t.Cleanup(func() {
		end(errEnd)
		for range serve {
			if err := <-served; !errors.Is(err, errEnd) {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	return w
}

func (w *world) last() Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.decisions) == 0 {
		return Decision{}
	}
	return w.decisions[len(w.decisions)-1]
}

func rules(t testing.TB, entries ...string) Rules {
	t.Helper()
	r, err := ParseRules(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// say sends bytes and returns the status line of the answer.
func (w *world) say(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "closed"
	}
	return strings.TrimSpace(line)
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test", "*.allowed.test", "loop.test:*", "meta.test", "priv.test", "mixed.test",
		"mapped.test", "nat64.test", "unspecified.test", "ula.test", "nowhere.test")})
	for _, c := range []struct {
		request string
		status  int
		reason  Reason
	}{
		{"CONNECT evil.test:443", 403, ReasonNotListed},
		{"CONNECT 203.0.113.10:443", 403, ReasonNotListed},
		{"CONNECT [2001:db8::1]:443", 403, ReasonNotListed},
		{"CONNECT 3405803787:443", 400, ReasonMalformed},
		{"CONNECT 0xcb00710b:443", 400, ReasonMalformed},
		{"CONNECT 0313.0.0161.013:443", 400, ReasonMalformed},
		{"CONNECT 127.1:443", 400, ReasonMalformed},
		{"CONNECT [::ffff:203.0.113.11]:443", 403, ReasonNotListed},
		{"CONNECT loop.test:443", 403, ReasonAddress},
		{"CONNECT loop.test:18080", 403, ReasonAddress},
		{"CONNECT meta.test:80", 403, ReasonAddress},
		{"CONNECT priv.test:443", 403, ReasonAddress},
		{"CONNECT mixed.test:443", 403, ReasonAddress},
		{"CONNECT mapped.test:443", 403, ReasonAddress},
		{"CONNECT nat64.test:443", 403, ReasonAddress},
		{"CONNECT unspecified.test:443", 403, ReasonAddress},
		{"CONNECT ula.test:443", 403, ReasonAddress},
		{"CONNECT nowhere.test:443", 502, ReasonResolve},
		{"CONNECT allowed.test:22", 403, ReasonNotListed},
		{"CONNECT allowed.test:8080", 403, ReasonNotListed},
		{"CONNECT allowed.test:0443", 400, ReasonMalformed},
		{"CONNECT allowed.test", 400, ReasonMalformed},
		{"CONNECT allowed.test:443:443", 400, ReasonMalformed},
		{"CONNECT allowed.test.evil.test:443", 403, ReasonNotListed},
		{"CONNECT evil-allowed.test:443", 403, ReasonNotListed},
		{"CONNECT EVIL.TEST:443", 403, ReasonNotListed},
		{"CONNECT evil.test.:443", 403, ReasonNotListed},
		{"CONNECT evil#.allowed.test:443", 400, ReasonMalformed},
		{"CONNECT allowed.test@evil.test:443", 400, ReasonMalformed},
		{"CONNECT evil\x00.allowed.test:443", 400, ReasonMalformed},
		{"CONNECT evil.test/.allowed.test:443", 400, ReasonMalformed},
		{"GET http://evil.test/", 403, ReasonNotListed},
		{"GET http://allowed.test:8080/", 403, ReasonNotListed},
		{"GET https://allowed.test/", 400, ReasonMalformed},
		{"GET http://user@allowed.test/", 400, ReasonMalformed},
		{"GET /", 400, ReasonMalformed},
		{"GET http://loop.test/", 403, ReasonAddress},
	} {
		host := strings.TrimPrefix(strings.TrimPrefix(strings.SplitN(c.request, " ", 2)[1], "http://"), "https://")
		host, _, _ = strings.Cut(host, "/")
		got := w.say(t, c.request+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.status)) || w.last().Reason != c.reason || w.last().Allowed {
			t.Errorf("%q: got %q and reason %q, want %d and %q", c.request, got, w.last().Reason, c.status, c.reason)
		}
	}
	if len(w.dialled) > 0 {
		t.Errorf("dialled %v for requests that were refused", w.dialled)
	}
}

func TestRequestsThatCanBeReadInTwoWays(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test")})
	for _, head := range []string{
		"GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n folded: x\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nA: b\rHost: evil.test\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\nHost: evil.test\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
		"GET http://allowed.test\\@evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n",
		"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\x00\r\n",
		"\x05\x01\x00\r\n",
		"\x04\x01\x01\xbb\x7f\x00\x00\x01\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nX: " + strings.Repeat("a", maxHead) + "\r\n",
	} {
		if got := w.say(t, head+"\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%.80q: got %q, want 400", head, got)
		}
	}
	if len(w.dialled) > 0 {
		t.Errorf("dialled %v", w.dialled)
	}
}

func (w *world) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: w.address}, nil },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the test's own server
	}}
}

func TestWhatIsAllowedWorks(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test", "*.allowed.test", "10.77.0.0/16:443", "203.0.113.10:443", "priv.test:443")})
	client := w.client()
	defer client.CloseIdleConnections()
	for _, url := range []string{
		"http://allowed.test/a", "http://ALLOWED.test:80/b", "https://allowed.test/c", "https://other.allowed.test/d",
		"https://priv.test/e", "https://203.0.113.10/f",
	} {
		resp, err := client.Post(url, "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasPrefix(string(b), "POST ") || !strings.HasSuffix(string(b), " body") {
			t.Errorf("%s: got %q, err %v", url, b, err)
		}
	}
	if got := w.dialled[0]; got != "203.0.113.10:80" {
		t.Errorf("dialled %s, want the address that was checked", got)
	}
}

func TestEachRequestOfAConnectionIsDecided(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test")})
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	br := bufio.NewReader(c)
	for host, want := range map[string]int{"allowed.test": 200} {
		for range 3 {
			fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", host, host)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%s: got %v, err %v", host, resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	fmt.Fprintf(c, "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "403") {
		t.Errorf("the fourth: got %q, err %v, want 403", line, err)
	}
}

// inTunnel connects and then speaks; it returns what came back, if anything.
func (w *world) inTunnel(t *testing.T, target string, speak func(net.Conn) error) error {
	t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	answer := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	if _, err := io.ReadFull(c, answer); err != nil || !strings.Contains(string(answer), " 200 ") {
		t.Fatalf("got %q, err %v", answer, err)
	}
	return speak(c)
}

func handshake(name string) func(net.Conn) error {
	return func(c net.Conn) error {
		return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() //nolint:gosec // the test's own server
	}
}

func TestTunnelsCarryTheNameThatWasAskedFor(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test", "allowed.test:8443", "203.0.113.10:443")})
	plain := func(c net.Conn) error {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
		_, err := c.Read(make([]byte, 1))
		return err
	}
	slow := func(c net.Conn) error {
		time.Sleep(400 * time.Millisecond)
		return handshake("evil.test")(c)
	}
	for _, c := range []struct {
		what, target string
		speak        func(net.Conn) error
		reason       Reason
	}{
		{"the same name", "allowed.test:443", handshake("allowed.test"), ""},
		{"another name", "allowed.test:443", handshake("evil.test"), ReasonName},
		{"no name", "allowed.test:443", handshake(""), ReasonName},
		{"a name for an address", "203.0.113.10:443", handshake("evil.test"), ReasonName},
		{"no TLS", "allowed.test:443", plain, ReasonNotTLS},
		{"another name on another port", "allowed.test:8443", handshake("evil.test"), ReasonName},
		{"another name on another port, late", "allowed.test:8443", slow, ReasonName},
		{"the same name on another port", "allowed.test:8443", handshake("allowed.test"), ""},
	} {
		err := w.inTunnel(t, c.target, c.speak)
		if (err == nil) != (c.reason == "") || w.last().Reason != c.reason {
			t.Errorf("%s: got %v and reason %q, want %q", c.what, err, w.last().Reason, c.reason)
		}
	}
}

func TestServersThatSpeakFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			fmt.Fprint(c, "SSH-2.0-test\r\n")
			c.Close()
		}
	}()
	w := newWorld(t, Config{Rules: rules(t, "ssh.test:22")})
	w.secure = l.Addr().String()
	err = w.inTunnel(t, "ssh.test:22", func(c net.Conn) error {
		got, err := bufio.NewReader(c).ReadString('\n')
		if got != "SSH-2.0-test\r\n" {
			return fmt.Errorf("got %q, err %w", got, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBytesAreBudgeted(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test"), MaxBytes: 4000})
	client := w.client()
	defer client.CloseIdleConnections()
	var err error
	for range 40 {
		var resp *http.Response
		if resp, err = client.Post("http://allowed.test/", "text/plain", strings.NewReader(strings.Repeat("x", 200))); err != nil {
			break
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			break
		}
	}
	if got := w.say(t, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); !strings.Contains(got, "429") || w.last().Reason != ReasonBudget {
		t.Errorf("after the budget: got %q and %q, err %v", got, w.last().Reason, err)
	}
}

func TestConnectionsAreBudgeted(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test"), MaxConnections: 1})
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if got := w.say(t, ""); !strings.Contains(got, "429") {
		t.Errorf("the second connection: got %q", got)
	}
}

func TestAskDecidesOnceAndNotForEver(t *testing.T) {
	var asked atomic.Int32
	w := newWorld(t, Config{AskTimeout: 50 * time.Millisecond, Ask: func(ctx context.Context, host string, _ uint16) bool {
		asked.Add(1)
		if host == "evil.test" {
			<-ctx.Done()
		}
		return true
	}})
	for range 2 {
		if got := w.say(t, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); !strings.Contains(got, "200") {
			t.Errorf("got %q", got)
		}
		if got := w.say(t, "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"); !strings.Contains(got, "403") {
			t.Errorf("without an answer in time: got %q", got)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want once for each host", n)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	served := make(chan error)
	go func() { served <- New(Config{}).Serve(ctx, l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cause := errors.New("enough")
	cancel(cause)
	if err := <-served; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived Serve")
	}
}
