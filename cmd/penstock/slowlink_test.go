package main

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A slowLink is a way to a server whose answers take a moment, so that what is
// asked at once is answered at once. It counts the round trips.
type slowLink struct {
	net.Listener
	target string
	done   sync.WaitGroup

	mu      sync.Mutex
	asking  bool // the last piece went to the server
	turns   int
	closing []net.Conn
}

func newSlowLink(t *testing.T, target string) *slowLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowLink{Listener: l, target: target}
	s.done.Go(s.accept)
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for _, c := range s.closing {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.done.Wait()
	})
	return s
}

func (s *slowLink) accept() {
	for {
		client, err := s.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", s.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		s.mu.Lock()
		s.closing = append(s.closing, client, server)
		s.mu.Unlock()
		s.done.Go(func() { s.pass(server, client, true) })
		s.done.Go(func() { s.pass(client, server, false) })
	}
}

func (s *slowLink) pass(to, from net.Conn, asks bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !asks {
			time.Sleep(20 * time.Millisecond) // the link is slow
		}
		s.mu.Lock()
		if asks && !s.asking {
			s.turns++
		}
		s.asking = asks
		s.mu.Unlock()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// trips returns how many answers were waited for since it was last called.
func (s *slowLink) trips() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.turns
	s.turns = 0
	return n
}

// A command needs a few round trips, however many streams an installation has: two of them to
// connect and one to open the pool. With the handshake of TCP "job ls" takes five in all, so
// 1.5 s where each takes 300 ms.
func TestCommandsNeedFewRoundTrips(t *testing.T) {
	f := newFixture(t)
	f.serve()
	id := f.submit("true")
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	at, err := url.Parse(endpoint.URL)
	f.must(err)
	link := newSlowLink(t, at.Host)
	way := url.URL{Scheme: "nats", User: url.UserPassword(endpoint.User, endpoint.Password), Host: link.Addr().String()}
	for _, tt := range []struct {
		most    int
		command []string
	}{
		{4, []string{"job", "ls"}}, {5, []string{"job", "get", id}}, {4, []string{"queue", "ls"}}, {4, []string{"dead", "ls"}},
		{4, []string{"why", id}}, {8, []string{"logs", id}}, {4, []string{"submit", "--isolation", "none", "--", "true"}},
	} {
		f.run(tt.command...) // the first one of all may have to make a lane
		// What a busy machine asks at once may be on its way in several pieces, which count
		// as more.
		got := tt.most + 1
		for try := 0; try < 5 && got > tt.most; try++ {
			link.trips()
			f.run(append([]string{"--server", way.String()}, tt.command...)...)
			got = link.trips()
		}
		t.Logf("%v: %d round trips", tt.command, got)
		if got > tt.most {
			t.Errorf("%v takes %d round trips, want %d at most", tt.command, got, tt.most)
		}
	}
}

// A worker that is started before its pool waits for it, and says so.
func TestAWorkerWaitsForItsPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pool, again := f.serve()
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	pool.end()
	at, err := url.Parse(endpoint.URL)
	f.must(err)
	at.User = url.UserPassword(endpoint.User, endpoint.Password)
	worker := []string{"worker", "--admin", "", "--drain", "1s", "--slots", "1"}
	waiting := []*program{
		f.start("waiting for it", worker...),
		f.start("waiting for it", append(worker, "--server", at.String(), "--data", t.TempDir())...),
	}
	f.start("serving", again...)
	for _, w := range waiting {
		f.eventually(60*time.Second, "the worker has begun", func() bool { return strings.Contains(w.log.String(), "slots on") })
	}
	f.run("wait", "--timeout", patience(60), f.submit("true"))
}

// Where a broker is reached and no dispatcher answers, a command says so soon, with the
// command that runs one, and changes nothing.
func TestCommandsNeedADispatcher(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := jobstest.Start(t)
	for _, args := range [][]string{{"submit", "--isolation", "none", "--", "true"}, {"queue", "pause", "default", "--force"}} {
		began := time.Now()
		f.refused(7, []string{"no dispatcher answers", "penstock serve --server " + server.URL()}, append([]string{"--server", server.URL()}, args...)...)
		if took := time.Since(began); took > slowtest.Limit(15*time.Second) {
			t.Errorf("%v took %v", args, took)
		}
	}
	q := jobstest.Queue(t, server.Connect(), queue.Config{})
	if list, err := q.List(jobstest.Context(t), record.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("jobs %+v, %v", list, err)
	}
}
