package main

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// listening lists the addresses of TCP that a process listens on.
func (f *fixture) listening(pid int) []string {
	f.Helper()
	sockets := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	f.must(err)
	for _, link := range links {
		to, _ := os.Readlink(link) // it may be closed meanwhile
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			sockets[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		rows, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		f.must(err)
		for row := range strings.Lines(string(rows)) {
			if cols := strings.Fields(row); cols[3] == "0A" && sockets[cols[9]] {
				found = append(found, f.address(cols[1]))
			}
		}
	}
	return found
}

// address reads one of the kernel's tables: words of four bytes in the order of
// this machine, and a port.
func (f *fixture) address(s string) string {
	f.Helper()
	host, port, _ := strings.Cut(s, ":")
	ip, err := hex.DecodeString(host)
	f.must(err)
	for i := 0; i < len(ip); i += 4 {
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(ip[i:]))
	}
	number, err := hex.DecodeString(port)
	f.must(err)
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(number)).String()
}

// A client without credentials tries every address that a pool listens on, while jobs
// run that share the host's network: only the health and the metrics of the admin
// address answer.
func TestNoListenerAnswersStrangers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a pool's descriptors are hidden from its own user: only root can list its listeners")
	}
	exectest.Need(t, "curl")
	f := newFixture(t)
	asked := make(chan string, 100)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path + " " + r.Header.Get("X-Api-Key") }))
	t.Cleanup(upstream.Close)
	key := keyPrefix + rand.Text()
	f.env = []string{"ANTHROPIC_API_KEY=" + key, "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	broker, admin, web := freeAddress(f), freeAddress(f), freeAddress(f)
	pool := f.start("serving", "serve", "--listen", broker, "--admin", admin, "--http", web, "--slots", "2", "--drain", "1s")
	const script = `curl -sS --fail -m 20 -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/models" && echo answered && sleep 300`
	for _, flags := range [][]string{{"--network", "full"}, {"--backend", "none", "--network", "allowlist", "--allow-host", "127.0.0.1:*"}} {
		id := f.submit(script, flags...)
		f.eventually(60*time.Second, "the job has asked the model API", func() bool {
			return strings.Contains(f.run("logs", id), "answered")
		})
	}
	for range 2 {
		if got := <-asked; got != "/v1/models "+key {
			t.Errorf("a job asked for %q", got)
		}
	}
	found := f.listening(pool.Process.Pid)
	// The gate and the way inside of each job, and the proxy of one.
	if len(found) != 3+5 || !slices.Contains(found, broker) || !slices.Contains(found, admin) || !slices.Contains(found, web) {
		t.Fatalf("the pool listens on %v, want %s, %s, %s and 5 others", found, broker, admin, web)
	}
	for _, address := range found {
		switch address {
		case broker:
			if c, err := nats.Connect("nats://"+broker, nats.Name("stranger"), nats.NoReconnect()); err == nil {
				c.Close()
				t.Error("the broker lets in a stranger")
			}
		case admin:
			f.stranger(address, map[string]int{"GET /metrics": 200, "GET /livez": 200, "GET /readyz": 200, "GET /version": 200})
		case web:
			f.stranger(address, map[string]int{"GET /": 303, "HEAD /": 303}) // to the form for a token
		default:
			f.stranger(address, nil)
		}
	}
	if len(asked) > 0 {
		t.Errorf("the model API was asked: %s", <-asked)
	}
	for _, id := range strings.Fields(f.run("job", "ls", "-o", "id")) {
		if told := f.events(id); count(told, jobs.Milestone)+count(told, jobs.AskOpened) > 0 {
			t.Error("a stranger has told something to a session")
		}
		f.run("job", "cancel", id)
	}
}

// stranger asks for whatever is behind an address. Only what is named is answered.
func (f *fixture) stranger(address string, open map[string]int) {
	f.Helper()
	for _, line := range []string{
		"GET /metrics", "GET /livez", "GET /readyz", "GET /version", "GET /debug/pprof/", "GET /debug/level", "PUT /debug/level", "GET /", "HEAD /", "GET /api/hello",
		"POST /metrics", "GET /v1/models", "POST /v1/messages", "POST /v1/responses", "GET /v1beta/models?key=dummy",
		"POST /v1/milestones", "PUT /v1/artifacts/x", "PUT /v1/result", "POST /v1/asks", "POST /v1/terminals",
		"GET http://" + address + "/x", "CONNECT " + address,
	} {
		for _, credentials := range []string{
			"", "x-api-key: dummy\r\nAuthorization: Bearer dummy\r\nx-goog-api-key: dummy\r\n",
			"Authorization: Basic cGVuc3RvY2s6ZHVtbXk=\r\nProxy-Authorization: Basic cGVuc3RvY2s6ZHVtbXk=\r\n",
		} {
			c, err := net.Dial("tcp", address)
			f.must(err)
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			_, err = io.WriteString(c, line+" HTTP/1.1\r\nHost: "+address+"\r\n"+credentials+"Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"text\":\"x\"}")
			f.must(err)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				f.Fatalf("%s, asked for %s: %v", address, line, err)
			}
			want, named := open[line]
			if named != (res.StatusCode == want) || !named && (res.StatusCode < 400 || res.StatusCode >= 500) {
				f.Errorf("%s, asked for %s with %q: got %d", address, line, credentials, res.StatusCode)
			}
			_ = res.Body.Close() // what is left of it goes with the connection
			c.Close()
		}
	}
}
