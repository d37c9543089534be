package proxy

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Where others reach the listener, only clients with the token are served; others
// learn nothing, and are not reported as the jail's.
func TestOnlyTheTokenIsServed(t *testing.T) {
	const token = "a-token-of-the-jail"
	w := newWorld(t, Config{Rules: rules(t, "allowed.test"), Token: token})
	basic := func(user, password string) string {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth(user, password)
		return "Proxy-Authorization: " + r.Header.Get("Authorization") + "\r\n"
	}
	for _, auth := range []string{
		"", "Proxy-Authorization: Basic !\r\n", "Proxy-Authorization: Bearer " + token + "\r\n", basic("penstock", ""), basic(token, ""),
		basic("penstock", token+"x"), "Authorization" + strings.TrimPrefix(basic("penstock", token), "Proxy-Authorization"),
	} {
		for _, line := range []string{"GET http://allowed.test/", "GET http://evil.test/", "CONNECT allowed.test:443"} {
			if got := w.say(t, line+" HTTP/1.1\r\nHost: "+strings.Split(strings.TrimPrefix(line[strings.Index(line, " ")+1:], "http://"), "/")[0]+"\r\n"+auth+"\r\n"); !strings.Contains(got, " 407 ") {
				t.Errorf("%s with %q: got %q, want 407", line, auth, got)
			}
		}
	}
	if d := w.last(); d.Method != "" || w.resolved.Load() != 0 {
		t.Errorf("strangers are told of as %+v, and %d names were looked up", d, w.resolved.Load())
	}
	// As programs do that know of the proxy by its variables.
	at, err := url.Parse(strings.TrimPrefix(Env(w.address, token)[0], "HTTP_PROXY="))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(at)}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://allowed.test/x")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "GET allowed.test/x " {
		t.Errorf("got %q, %v", body, err)
	}
}

// A client that holds connections and asks for nothing keeps no other client out,
// and does not count towards the session's budget.
func TestHeldConnectionsMakeRoom(t *testing.T) {
	w := newWorld(t, Config{Rules: rules(t, "allowed.test"), MaxConnections: 4})
	for i := range 60 {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, []string{"", "GET http://allowed.test/ HT"}[i%2]) // it may be cut meanwhile
	}
	time.Sleep(20 * time.Millisecond) // a new connection is not closed for others
	began := time.Now()
	for range 3 {
		if got := w.say(t, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n"); !strings.Contains(got, " 200 ") {
			t.Errorf("beside them: got %q", got)
		}
	}
	if took := time.Since(began); took > slowtest.Limit(5*time.Second) {
		t.Errorf("it took %v beside them", took)
	}
}
