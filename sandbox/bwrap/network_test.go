package bwrap_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/proxy"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// An internet is what jails in a test may reach: example.com, whose server
// is here, with the certificate that httptest has for that name.
type internet struct {
	plain, secure *httptest.Server
	ca            []byte

	mu   sync.Mutex
	made []proxy.Decision // guarded by mu
}

func newInternet(t *testing.T) *internet {
	t.Helper()
	dir := t.TempDir()
	files := http.FileServer(http.Dir(dir))
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/files/") {
			http.StripPrefix("/files", files).ServeHTTP(w, r)
			return
		}
		fmt.Fprintf(w, "hello from %s", r.Host)
	})
	n := &internet{plain: httptest.NewServer(answer), secure: httptest.NewTLSServer(answer)}
	t.Cleanup(n.plain.Close)
	t.Cleanup(n.secure.Close)
	n.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.secure.Certificate().Raw})
	for _, script := range []string{
		"git init -q -b main src && cd src && echo hi > README && git add . && git -c user.name=t -c user.email=t@t commit -qm m && git clone -q --bare . ../src.git && cd ../src.git && git update-server-info",
		"mkdir -p go/example.com/m/@v && cd go/example.com/m/@v && echo v1.2.3 > list && echo '{\"Version\":\"v1.2.3\",\"Time\":\"2026-01-02T03:04:05Z\"}' > v1.2.3.info && echo 'module example.com/m' > v1.2.3.mod",
	} {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	return n
}

// proxy leads names to the servers; loop.test leads to this host.
func (n *internet) proxy(t *testing.T, rules ...string) *proxy.Proxy {
	t.Helper()
	r, err := proxy.ParseRules(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return proxy.New(proxy.Config{
		Rules: r, Hint: "Somebody can add it.",
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "loop.test" {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("203.0.113.10")}, nil
		},
		Dial: func(ctx context.Context, a netip.AddrPort) (net.Conn, error) {
			to := n.secure
			if a.Port() == 80 {
				to = n.plain
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.Listener.Addr().String())
		},
		Hooks: proxy.Hooks{Decided: func(d proxy.Decision) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.made = append(n.made, d)
		}},
	})
}

// decisions returns what was decided since it was last asked.
func (n *internet) decisions() []proxy.Decision {
	n.mu.Lock()
	defer n.mu.Unlock()
	made := n.made
	n.made = nil
	return made
}

// run runs a shell script in a jail whose only way out is p.
func (n *internet) run(t *testing.T, p *proxy.Proxy, script string, env []string) (string, sandbox.Exit) {
	t.Helper()
	const ca = "/job/ca.pem"
	var out bytes.Buffer
	spec := sandbox.Spec{
		Args: []string{"/bin/sh", "-c", script}, Network: sandbox.NetworkGate, Listen: proxy.Listen(),
		Files: []sandbox.File{{Path: ca, Data: n.ca}},
		Env: slices.Concat(env, []string{
			"PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent", "TMPDIR=/tmp", "GOFLAGS=-mod=mod", "GONOSUMDB=*",
			"SSL_CERT_FILE=" + ca, "CURL_CA_BUNDLE=" + ca, "GIT_SSL_CAINFO=" + ca, "NODE_EXTRA_CA_CERTS=" + ca,
		}),
	}
	jail, err := sandbox.Start(t.Context(), &bwrap.Backend{}, spec, sandbox.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ServeAll(t.Context(), jail.Listeners(), jail.PacketConns()); err != nil {
		t.Error(err)
	}
	exit, err := jail.Wait()
	if err != nil {
		t.Error(err)
	}
	return out.String(), exit
}

// Programs reach an allowed host whether they know of the proxy or not.
func TestToolsReachAllowedHosts(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	n := newInternet(t)
	for _, c := range []struct{ tool, script, want string }{
		{"curl", "curl -sS -m 20 https://example.com/ && curl -sS -m 20 http://example.com/", "hello from example.comhello from example.com"},
		{"git", "git clone -q https://example.com/files/src.git /tmp/x && cat /tmp/x/README", "hi\n"},
		{"node", `node -e 'fetch("https://example.com/").then(r=>r.text()).then(t=>console.log(t))'`, "hello from example.com\n"},
		{"/usr/bin/python3", `/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("https://example.com/", timeout=20).read().decode())'`, "hello from example.com\n"},
		{"go", `cd /tmp && GOPROXY=https://example.com/files/go go list -m example.com/m@v1.2.3`, "example.com/m v1.2.3\n"},
	} {
		if _, err := exec.LookPath(c.tool); err != nil {
			t.Logf("%s is not here", c.tool)
			continue
		}
		if path, _ := exec.LookPath(c.tool); !strings.HasPrefix(path, "/usr/") {
			t.Logf("%s is not where jails see it", path)
			continue
		}
		for how, env := range map[string][]string{"CONNECT": proxy.Env(proxy.Address, ""), "TLS": nil} {
			p := n.proxy(t, "example.com")
			got, exit := n.run(t, p, c.script, env)
			if got != c.want || !exit.Success() {
				t.Errorf("%s, %s: got %q and %v, want %q", c.tool, how, got, exit, c.want)
			}
			made := n.decisions()
			by := func(method string) bool {
				return slices.ContainsFunc(made, func(d proxy.Decision) bool { return d.Allowed && d.Method == method })
			}
			// Older versions of node do not know of the proxy; then it is caught.
			if !by(how) && (c.tool != "node" || !by("TLS")) {
				t.Errorf("%s, %s: decided %+v", c.tool, how, made)
			}
		}
	}
}

// A worker that is not root opens the same ports in its jails.
func TestToolsReachAllowedHostsOfAUser(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	sandboxtest.Unprivileged(t, "TestToolsReachAllowedHosts")
}

// A program that is refused learns why, and at once.
func TestRefusalsAreClearInside(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	n := newInternet(t)
	p := n.proxy(t, "example.com", "loop.test", "*.fake.test")
	for _, c := range []struct {
		script  string
		proxied bool
		says    []string
		reason  proxy.Reason
	}{
		{"curl -sS -m 20 http://evil.test/", true, []string{"evil.test:80 is not on the list of allowed hosts", "Somebody can add it."}, proxy.ReasonNotListed},
		{"curl -vsS -m 20 https://evil.test/", true, []string{"403 evil.test:443 is not on the list"}, proxy.ReasonNotListed},
		{"curl -sS -m 20 https://evil.test/", false, []string{"Could not resolve host: evil.test"}, proxy.ReasonNotListed},
		{"curl -sS -m 20 https://loop.test/", false, []string{"alert access denied"}, proxy.ReasonAddress},
		{"ip=$(getent hosts example.com); echo $ip; curl -sSk -m 20 --resolve evil.test:443:${ip%% *} https://evil.test/", false, []string{"unrecognized name"}, proxy.ReasonName},
		{"curl -sS -m 20 -H 'Host: evil.test' http://example.com/", false, []string{"example.com:80 and to no other host"}, proxy.ReasonName},
		{"curl -sS -m 20 http://203.0.113.10/", false, []string{"Couldn't connect to server"}, ""},
		{"curl -sS -m 20 --socks5-hostname 127.0.0.1:3129 https://example.com/", false, []string{"SOCKS5"}, proxy.ReasonMalformed},
		{"git clone https://evil.test/x.git /tmp/x", true, []string{"403"}, proxy.ReasonNotListed},
		{"/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://evil.test/\")'", true, []string{"403 evil.test:443 is not on the list"}, proxy.ReasonNotListed},
		{"cat /etc/resolv.conf; touch /etc/resolv.conf", false, []string{"nameserver 127.0.0.1\n", "ead-only file system"}, ""},
	} {
		tool, _, _ := strings.Cut(c.script, " ")
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("%s is not here", tool)
			continue
		}
		var env []string
		if c.proxied {
			env = proxy.Env(proxy.Address, "")
		}
		began := time.Now()
		got, exit := n.run(t, p, c.script, env)
		for _, says := range c.says {
			if !strings.Contains(got, says) || exit.Success() && tool != "curl" {
				t.Errorf("%s: got %q and %v, want %q", c.script, got, exit, says)
			}
		}
		made := n.decisions()
		if c.reason != "" && !slices.ContainsFunc(made, func(d proxy.Decision) bool { return d.Reason == c.reason }) {
			t.Errorf("%s: decided %+v, want %s", c.script, made, c.reason)
		}
		t.Logf("%-60.60s %v", c.script, time.Since(began).Round(time.Millisecond))
	}
}

// Files that say how to resolve names are made for each network.
func TestResolvConfSaysWhoAnswers(t *testing.T) {
	sandboxtest.Require(t, &bwrap.Backend{})
	host, _ := os.ReadFile(filepath.Clean("/etc/resolv.conf"))
	for _, c := range []struct {
		spec sandbox.Spec
		want string
	}{
		{sandbox.Spec{}, ""},
		{sandbox.Spec{Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:3128"}}, ""},
		{sandbox.Spec{Network: sandbox.NetworkGate, Listen: proxy.Listen()}, "nameserver 127.0.0.1\n"},
		{sandbox.Spec{Network: sandbox.NetworkFull}, string(host)},
	} {
		c.spec.Args = []string{"cat", "/etc/resolv.conf"}
		if out, _, err := sandbox.Output(t.Context(), &bwrap.Backend{}, c.spec); err != nil || string(out) != c.want {
			t.Errorf("network %q with %q: got %q, err %v", c.spec.Network, c.spec.Listen, out, err)
		}
	}
}
