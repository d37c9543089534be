package bwrap_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/proxy"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// A jail without a route reaches what the proxy outside allows, and nothing
// else, neither through it nor around it.
func TestProxyIsTheOnlyWayOut(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not here")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	rules, err := proxy.ParseRules(address)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`curl -s -m 5 -x http://127.0.0.1:32128 %s; echo
curl -s -m 5 -x http://127.0.0.1:32128 http://127.0.0.1:1/
curl -s -m 5 --noproxy '*' %s || echo no way`, server.URL, server.URL)
	var out bytes.Buffer
	p, err := sandbox.Start(t.Context(), b, sandbox.Spec{
		Args: []string{"sh", "-c", script}, Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:32128"},
	}, sandbox.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.New(proxy.Config{Rules: rules}).Serve(t.Context(), p.Listeners()[0]); err != nil {
		t.Error(err)
	}
	exit, err := p.Wait()
	want := "hello\n127.0.0.1:1 is not on the list of allowed hosts\nno way\n"
	if err != nil || !exit.Success() || out.String() != want {
		t.Errorf("got %q and %v, err %v; want %q", out.String(), exit, err, want)
	}
}
