package deliver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
)

// names answers each question for an address of IPv4 with one, by DNS, and returns a
// resolver that asks there.
func names(t *testing.T, answer [4]byte) *net.Resolver {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	go func() {
		defer close(ended)
		for query := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if _, err := conn.WriteTo(dnsAnswer(query[:n], answer), from); err != nil {
				return
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// dnsAnswer repeats a question with an address, or with none where it asks for another
// type than A.
func dnsAnswer(query []byte, address [4]byte) []byte {
	end := 12 + bytes.IndexByte(query[12:], 0) + 5
	reply := bytes.Clone(query[:end])
	copy(reply[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if bytes.Equal(query[end-4:end-2], []byte{0, 1}) {
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, address[:]...)
	}
	return reply
}

// No spelling of an address, no name, no proxy and no receiver makes the pool connect to
// what is not public; where only the connection can tell, the attempt says so.
func TestNothingPrivateIsReached(t *testing.T) {
	reached := receive(t, func(int, received, http.ResponseWriter) { t.Error("the host was reached") })
	port := reached.Listener.Addr().(*net.TCPAddr).Port
	t.Setenv("HTTPS_PROXY", reached.URL)
	t.Setenv("HTTP_PROXY", reached.URL)
	nc := jobstest.Start(t).Connect()
	store := jobstest.Webhooks(t, nc)
	jobstest.Log(t, nc)
	for i, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]",
		"0.0.0.0", "[::]", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "169.254.169.254",
		"[fd00:ec2::254]", "[fe80::1]", "224.0.0.1", "[ff02::1]", "rebound.example", "168.63.129.16",
	} {
		sender := deliver.NewSenderBy(nil, names(t, [4]byte{127, 0, 0, 1}))
		d := deliver.New(deliver.Config{Store: store, Sender: sender})
		name, target := fmt.Sprint("w", i), fmt.Sprintf("https://%s:%d/", host, port)
		early := d.Check(target)
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && early == nil {
			t.Errorf("%s was accepted", host)
		}
		if _, err := store.Add(jobstest.Context(t), operation.WebhookRequest{Name: name, URL: target, Secret: secret}, "test", false); err != nil {
			t.Fatal(err)
		}
		made, err := d.Test(jobstest.Context(t), name)
		// A resolver may take the numbers of the odd ones for names that do not exist.
		if err != nil || made.State != operation.DeliveryFailed || !strings.Contains(made.Error, "is not a public address") && !strings.Contains(made.Error, "no such host") {
			t.Errorf("%s: %+v, %v", host, made, err)
		}
	}
}

// What is opened is opened alone, and by http only there.
func TestNetworksThatAreAllowed(t *testing.T) {
	t.Parallel()
	sender := deliver.NewSender([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	for target, want := range map[string]string{
		"https://10.1.2.3/": "", "http://10.1.2.3/": "", "https://[::ffff:10.1.2.3]/": "", "https://10.2.0.1/": "not a public", "http://8.8.8.8/": "use https", "https://8.8.8.8/": "", "https://example.com/": "",
	} {
		err := sender.Check(target)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || jobs.Code(err) != jobs.CodeInvalid) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
	}
	if err := deliver.NewSender(nil).Check("http://example.com/"); err == nil {
		t.Error("http was accepted where no network is allowed")
	}
	for _, text := range []string{"10.0.0.0", "x", "::ffff:10.0.0.0/104", "10.0.0.0/33"} {
		if _, err := (deliver.Settings{AllowPrivate: []string{text}}).Networks(); err == nil {
			t.Errorf("network %q was accepted", text)
		}
	}
}

// A receiver cannot lead a delivery elsewhere, hold it for long, or fill memory and log.
func TestHostileReceivers(t *testing.T) {
	p := newPool(t)
	other := receive(t, func(int, received, http.ResponseWriter) { t.Error("a redirect was followed") })
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	if _, err := zip.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   func(operation.Delivery) bool
	}{
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
			func(d operation.Delivery) bool { return d.Status == 307 && d.State == "failed" }},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("y", 4096)); err != nil {
					return
				}
			}
		}, func(d operation.Delivery) bool { return d.State == "delivered" && len(d.Response) == 1024 }},
		"bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes()) // the sender may have had enough
		}, func(d operation.Delivery) bool { return d.State == "delivered" && len(d.Response) <= 3*1024 }},
		"headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("z", 64<<10)) },
			func(d operation.Delivery) bool { return d.State == "failed" && d.Status == 0 }},
		"binary": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\xff\xfe\x1b[31m")) },
			func(d operation.Delivery) bool {
				return d.State == "delivered" && strings.Contains(d.Response, "\uFFFD")
			}},
	} {
		server := httptest.NewServer(c.answer)
		t.Cleanup(server.Close)
		p.add(name, server.URL)
		made, err := deliver.New(p.cfg).Test(jobstest.Context(t), name)
		if err != nil || !c.want(made) {
			t.Errorf("%s: %+v, %v", name, made, err)
		}
	}
}

// A receiver that says nothing, or says it byte by byte, holds an attempt for its time and
// no longer.
func TestSlowReceivers(t *testing.T) {
	p := newPool(t)
	p.cfg.Sender.Within(300 * time.Millisecond)
	for name, answer := range map[string]http.HandlerFunc{
		"silent": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the sender goes
			<-r.Context().Done()
		},
		"drops": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "."); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush() // the sender may have gone
				select {
				case <-r.Context().Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		},
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		p.add(name, server.URL)
		made, err := deliver.New(p.cfg).Test(jobstest.Context(t), name)
		if err != nil || time.Duration(made.Took) > jobstest.Patience || (made.State == "delivered") != (name == "drops") {
			t.Errorf("%s: %+v, %v", name, made, err)
		}
		if name == "silent" && !strings.Contains(made.Error, "no answer within") {
			t.Errorf("the silent one: %s", made.Error)
		}
	}
}

// Nothing that a client names can become a header or another request.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	good := operation.WebhookRequest{Name: "ci", URL: "https://example.com/in", Secret: secret}
	for what, change := range map[string]func(*operation.WebhookRequest){
		"a line in the URL":  func(r *operation.WebhookRequest) { r.URL = "https://example.com/\r\nX: y" },
		"a space in the URL": func(r *operation.WebhookRequest) { r.URL = "https://example.com/ HTTP/1.1" },
		"a line in the name": func(r *operation.WebhookRequest) { r.Name = "ci\nx" },
		"a dot in the name":  func(r *operation.WebhookRequest) { r.Name = "a.b" },
		"a wildcard":         func(r *operation.WebhookRequest) { r.Name = "*" },
		"a file":             func(r *operation.WebhookRequest) { r.URL = "file:///etc/passwd" },
		"no host":            func(r *operation.WebhookRequest) { r.URL = "https:///in" },
		"an opaque URL":      func(r *operation.WebhookRequest) { r.URL = "https:example.com" },
		"a user": func(r *operation.WebhookRequest) {
			r.URL = "https://" + url.UserPassword("a", "b").String() + "@example.com/"
		},
		"a fragment":            func(r *operation.WebhookRequest) { r.URL += "#x" },
		"a URL of 3 KB":         func(r *operation.WebhookRequest) { r.URL += strings.Repeat("a", 3000) },
		"a kind of the agent's": func(r *operation.WebhookRequest) { r.Events = []string{"message"} },
		"a short secret":        func(r *operation.WebhookRequest) { r.Secret = "whsec_AAAA" },
		"a secret of others":    func(r *operation.WebhookRequest) { r.Secret = strings.TrimPrefix(secret, "whsec_") },
	} {
		bad := good
		change(&bad)
		data := jsonOf(t, bad)
		if _, err := operation.WebhookAdd.Decode(data); jobs.Code(err) != jobs.CodeInvalid || strings.Contains(err.Error(), "MfKQ9r8") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := operation.WebhookAdd.Decode(jsonOf(t, good)); err != nil {
		t.Errorf("a good one: %v", err)
	}
}
