package gate

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Only clients with the session's token are answered: in whatever header the programs
// of an API send their key. A stranger learns nothing, costs nothing, and is reported
// once.
func TestStrangersAreNotAnswered(t *testing.T) {
	wrong := []string{"", "dummy", token + "x", token[:len(token)-1], key, strings.ToUpper(token)}
	for api, path := range map[string]string{"anthropic": "/v1/models", "openai": "/v1/models", "google": "/v1beta/models"} {
		r := newRig(t, Config{API: api}, Limits{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
		ask := func(path string, headers ...string) int {
			status, body, _ := r.do("GET", path, "", headers...)
			if status == 401 && !strings.Contains(body, `"error"`) {
				t.Errorf("%s: refused in other words than the API's: %s", api, body)
			}
			return status
		}
		for _, header := range []struct{ name, before string }{{"X-Api-Key", ""}, {"X-Goog-Api-Key", ""}, {"Authorization", "Bearer "}} {
			for _, value := range wrong {
				if status := ask(path, "X-Api-Key", "dummy", header.name, header.before+value); status != 401 {
					t.Errorf("%s: %s %q: got %d, want 401", api, header.name, value, status)
				}
			}
		}
		for _, path := range []string{"/", "/api/hello", "/v1/files", path + "?key=" + key} { // those that are answered here, too
			if status := ask(path, "X-Api-Key", "dummy"); status != 401 {
				t.Errorf("%s: %s: got %d, want 401", api, path, status)
			}
		}
		if len(r.violations) != 1 || r.session.Meter().Violations != 0 || r.sent() != 0 {
			t.Errorf("%s: %d were told, meter %+v, %d reached the provider", api, len(r.violations), r.session.Meter(), r.sent())
		}
		for i, headers := range [][]string{{"X-Api-Key", token}, {"X-Goog-Api-Key", token}, {"Authorization", "Bearer " + token}, {"Authorization", "bearer " + token}} {
			if status := ask(path, headers...); status != 200 || r.sent() != i+1 {
				t.Errorf("%s: with %v: got %d", api, headers[0], status)
			}
		}
		if status := ask(path+"?key="+token, "Authorization", "none"); (status == 200) != (api == "google") {
			t.Errorf("%s: with a key in the query: got %d", api, status)
		}
	}
}

// A session without a token admits no client.
func TestASessionWithoutAToken(t *testing.T) {
	s := NewSession("s", "", Limits{})
	if s.opens(nil) || s.opens([]string{""}) {
		t.Error("it lets in who sends nothing")
	}
}

// A client that holds connections without a request keeps out neither others nor the
// session itself, and uses up no descriptors: not with silence, not with half a
// request, not with refused requests, and not between two requests.
func TestHeldConnectionsMakeRoom(t *testing.T) {
	r := newRig(t, Config{Parallel: 1}, Limits{}, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/base/v1/messages" {
			stream(start)(w, req)
			<-req.Context().Done()
		}
	})
	res, err := r.client.Post(r.url+"/v1/messages", "application/json", strings.NewReader(hello))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() // under way all the time
	known := "HEAD / HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: " + token + "\r\n\r\n"
	var held []net.Conn
	for i := range 300 {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, []string{"", "POST /v1/messages HTTP/1.1\r\nHost: loc", strings.ReplaceAll(known, token, "other"), known}[i%4]) // it may be cut meanwhile
		held = append(held, c)
	}
	began := time.Now()
	for range 5 {
		r.client.CloseIdleConnections()
		if status, _, _ := r.do("HEAD", "/", ""); status != 200 {
			t.Errorf("beside them: got %d", status)
		}
	}
	if took := time.Since(began); took > slowtest.Limit(5*time.Second) {
		t.Errorf("it took %v beside them", took)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, len(start))); err != nil {
		t.Errorf("the call that was under way was cut: %v", err)
	}
	open := 0
	for _, c := range held {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			open++
		}
	}
	if open > 3 {
		t.Errorf("%d connections are held open beside one that is used, want 3 at the most", open)
	}
}
