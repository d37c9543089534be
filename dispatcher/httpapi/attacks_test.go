package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
	"github.com/penstock-run/penstock/jobs"
)

// A page on a foreign name whose address has become ours is answered nothing, and a page
// of another origin changes nothing. Both have a credential, as a browser with a cookie
// would.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	p := open(t)
	cfg := p.config()
	cfg.Hosts = []string{"pool.example"}
	p.url = p.serve(cfg)
	port := p.url[strings.LastIndexByte(p.url, ':'):]
	for _, c := range []struct {
		host   string
		status int
	}{
		{"evil.example" + port, 421}, {"evil.example", 421}, {"127.0.0.1.evil.example" + port, 421}, {"10.0.0.1" + port, 421}, {"localhost.evil.example", 421}, {"[::1]" + port, 421}, {"pool.example.", 200},
		{"pool.example" + port, 200}, {"POOL.example", 200}, {"localhost" + port, 200}, {"127.0.0.1" + port, 200}, {"127.0.0.1", 200}, {"", 421},
	} {
		if got := p.raw(fmt.Sprintf("GET /v1/version HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer operator\r\nConnection: close\r\n\r\n", c.host)); got.status != c.status {
			t.Errorf("for host %q: %d %s", c.host, got.status, got.body)
		}
	}
	for _, headers := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
		got := p.ask(jobs.RoleOperator, "POST /v1/jobs", plain(t), headers...)
		if got.status != http.StatusForbidden || got.problem(t).Code != "cross_origin" {
			t.Errorf("a page with %v: %d %s", headers, got.status, got.body)
		}
	}
	for _, headers := range [][]string{{"Origin", p.url}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
		if got := p.ask(jobs.RoleOperator, "POST /v1/jobs", plain(t), headers...); got.status != http.StatusCreated {
			t.Errorf("a page of our own with %v: %d %s", headers, got.status, got.body)
		}
	}
}

// raw sends bytes, and reads an answer.
func (p *pool) raw(request string) answer {
	p.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		p.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return answer{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(body)}
}

// zeros is a body that counts what was taken of it. A transport may go on reading when the
// answer has come.
type zeros struct {
	length int64
	taken  atomic.Int64
}

func (z *zeros) Read(p []byte) (int, error) {
	n := min(int64(len(p)), z.length-z.taken.Load())
	if n == 0 {
		return 0, io.EOF
	}
	z.taken.Add(n)
	return int(n), nil
}

// Of a body of 100 MB the server reads as much as it may be long, of one without a
// credential less, and then it closes the connection.
func TestHugeBodies(t *testing.T) {
	t.Parallel()
	p := open(t)
	for role, status := range map[string]int{"operator": http.StatusRequestEntityTooLarge, "wrong": http.StatusUnauthorized} {
		for _, length := range []int64{100 << 20, -1} {
			body := &zeros{length: 100 << 20}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/jobs", io.NopCloser(body))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			r.Header.Set("Authorization", "Bearer "+role)
			r.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				if res.StatusCode != status {
					t.Errorf("%s: %d, want %d", role, res.StatusCode, status)
				}
				res.Body.Close()
			} // else the connection was closed while the body was sent
			if taken := body.taken.Load(); taken > 32<<20 {
				t.Errorf("%s: %d bytes were taken", role, taken)
			}
		}
	}
}

// Clients that begin requests and do not go on hold connections and nothing else: the
// others are answered at once, and the server does not wait for them when it ends.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	p := open(t)
	var stop func()
	p.url, stop = p.listen("127.0.0.1:0", nil)
	var oldest net.Conn
	for range 1100 { // more than the server holds
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if oldest == nil {
			oldest = c
		}
		_, _ = io.WriteString(c, "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Le") // it may be closed for another one
	}
	// Sooner than one that sends no header is closed in any case.
	if err := oldest.SetReadDeadline(time.Now().Add(6 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is still open: %v", err)
	}
	for range 5 {
		began := time.Now()
		if got := p.ask(jobs.RoleViewer, "GET /v1/version", ""); got.status != http.StatusOK {
			t.Errorf("beside slow clients: %d after %v", got.status, time.Since(began))
		}
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 4*time.Second { // less than net/http waits for such clients
		t.Errorf("the server waits %v for clients that have asked for nothing", took)
	}
}

// What two servers could read as two requests is refused.
func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.url, _ = p.listen("127.0.0.1:0", nil)
	const head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer operator\r\nContent-Type: application/json\r\n"
	for _, rest := range []string{
		"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}\r\n\r\n",
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"Content-Length: +2\r\n\r\n{}",
		"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	} {
		if got := p.raw(head + rest); got.status < 400 || got.status > 501 {
			t.Errorf("%q: %d %s", rest, got.status, got.body)
		}
	}
	for _, rest := range []string{"Host: evil.example\r\n\r\n", "X-Long: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"} {
		if got := p.raw("GET /v1/version HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer operator\r\n" + rest); got.status < 400 {
			t.Errorf("%.40q: %d %s", rest, got.status, got.body)
		}
	}
}

// A bug costs one request, which is told where to look, and nothing of the program.
func TestABugIsOneAnswer(t *testing.T) {
	t.Parallel()
	p := open(t)
	cfg := p.config()
	cfg.Schema = func(string) ([]byte, error) { panic("with /a/path of ours") }
	p.url = p.serve(cfg)
	got := p.ask(jobs.RoleViewer, "GET /v1/schemas/job", "")
	if problem := got.problem(t); got.status != http.StatusInternalServerError || problem.Code != jobs.CodeInternal || strings.Contains(got.body, "path of ours") || strings.Contains(got.body, ".go") {
		t.Errorf("a bug: %d %s", got.status, got.body)
	}
	if got := p.ask(jobs.RoleViewer, "GET /v1/version", ""); got.status != http.StatusOK {
		t.Errorf("after a bug: %d", got.status)
	}
}

// The token of a directory is the same for each start. It is its owner's alone.
func TestToken(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first, err := httpapi.OpenToken(dir)
	if err != nil || len(first) != 43 {
		t.Fatalf("the token is %q: %v", first, err)
	}
	if again, err := httpapi.OpenToken(dir); err != nil || again != first {
		t.Errorf("again: %q, %v; want %q", again, err, first)
	}
	file := filepath.Join(dir, httpapi.TokenFile)
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
	auth := httpapi.Bearer(first, httpapi.Owner)
	for header, ok := range map[string]bool{
		"Bearer " + first: true, "bearer " + first: true, "Bearer " + first + "x": false, "Bearer " + first[:42]: false, "Bearer ": false, "": false, "Basic " + first: false, first: false,
	} {
		who, err := auth(&http.Request{Header: http.Header{"Authorization": {header}}})
		if ok != (err == nil) || ok != (who == httpapi.Owner) {
			t.Errorf("with %q: %+v, %v", header, who, err)
		}
	}
	if _, err := httpapi.Bearer("", httpapi.Owner)(&http.Request{Header: http.Header{"Authorization": {"Bearer "}}}); err == nil {
		t.Error("no token admits requests without one")
	}
	for _, spoil := range []func() error{
		func() error { return os.Chmod(file, 0o644) },
		func() error { return errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, []byte("short\n"), 0o600)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if got, err := httpapi.OpenToken(dir); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("a file that is not right: %q, %v", got, err)
		}
	}
}
