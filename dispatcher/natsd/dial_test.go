package natsd_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// early passes connections on to a server. On the first ones the client gets a ping right
// behind the server's greeting, as on a way that keeps the answer to its handshake for seconds.
func early(t *testing.T, server string, times int32) (address string, accepted *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = new(atomic.Int32)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			pings := accepted.Add(1) <= times
			all.Go(func() {
				defer client.Close()
				to, err := net.Dial("tcp", strings.TrimPrefix(server, "nats://"))
				if err != nil {
					t.Error(err)
					return
				}
				defer to.Close()
				all.Go(func() { _, _ = io.Copy(to, client); to.Close() })
				from := bufio.NewReader(to)
				if greeting, err := from.ReadString('\n'); err == nil {
					if pings {
						greeting += "PING\r\n"
					}
					_, _ = io.WriteString(client, greeting)
				}
				_, _ = io.Copy(client, from)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return "nats://" + l.Addr().String(), accepted
}

func TestDialBeginsAgainAfterAnEarlyPing(t *testing.T) {
	t.Parallel()
	server := jobstest.Start(t).URL()
	url, accepted := early(t, server, 2)
	nc, err := natsd.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if n := accepted.Load(); n != 3 {
		t.Errorf("it began %d times, want 3", n)
	}
	url, accepted = early(t, server, 1000)
	if nc, err := natsd.Dial(url); err == nil || accepted.Load() != 5 {
		t.Errorf("always too early: %v, %v, after %d times", nc, err, accepted.Load())
	}
}
