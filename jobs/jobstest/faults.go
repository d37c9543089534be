package jobstest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A Fault makes one step of something fail: the nth that asks.
type Fault struct {
	mu   sync.Mutex
	left int
	step string
}

// FailNth returns a fault for the nth step, counted from 1.
func FailNth(n int) *Fault { return &Fault{left: n} }

// Check returns an error if it is this step's turn to fail. A nil fault never
// fails.
func (f *Fault) Check(step string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left != 0 {
		return nil
	}
	f.step = step
	return fmt.Errorf("%s: injected fault", step)
}

// Step names the step that was made to fail; empty if there was no nth.
func (f *Fault) Step() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.step
}

// A Proxy is a way to a server that can be cut.
type Proxy struct {
	tb     testing.TB
	listen net.Listener
	target string

	mu    sync.Mutex
	down  bool          // refuses and drops everything
	mute  bool          // swallows what the server answers
	delay time.Duration // of each piece from the server
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

// Proxy listens on loopback and passes on to the server, until the test ends.
func (s *Server) Proxy() *Proxy {
	s.tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.tb.Fatal(err)
	}
	p := &Proxy{tb: s.tb, listen: l, target: strings.TrimPrefix(s.URL(), "nats://"), conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	s.tb.Cleanup(func() {
		_ = l.Close()
		p.Cut()
		p.done.Wait()
	})
	return p
}

// URL is where the proxy listens.
func (p *Proxy) URL() string { return "nats://" + p.listen.Addr().String() }

// Cut drops all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Mute lets everything through to the server and nothing back: what is asked
// for happens and is never answered.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Delay slows down what the server answers.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends what Cut, Mute and Delay began. What was muted is lost, so its
// connections are dropped.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mute {
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.down, p.mute, p.delay = false, false, 0
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(client, upstream) {
			_ = client.Close()
			if err == nil {
				_ = upstream.Close()
			}
			continue
		}
		p.done.Go(func() { p.pass(upstream, client, false) })
		p.done.Go(func() { p.pass(client, upstream, true) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *Proxy) pass(to, from net.Conn, answers bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		mute, delay := p.mute, p.delay
		p.mu.Unlock()
		if answers && mute {
			continue
		}
		if answers && delay > 0 {
			time.Sleep(delay)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A ChildServer is a server in a process of its own.
type ChildServer struct {
	tb   testing.TB
	dir  string
	port int
	cmd  *exec.Cmd
}

// Child starts a server in a child process: this test binary again, see
// [IsChild].
func Child(tb testing.TB) *ChildServer {
	tb.Helper()
	c := &ChildServer{tb: tb, dir: tb.TempDir(), port: freePort(tb)}
	c.Up()
	tb.Cleanup(c.Kill)
	return c
}

// URL is where the server listens; it stays the same.
func (c *ChildServer) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", c.port) }

// Up starts the server again after Kill.
func (c *ChildServer) Up() {
	c.tb.Helper()
	self, err := os.Executable()
	if err != nil {
		c.tb.Fatal(err)
	}
	c.cmd = exec.Command(self)
	c.cmd.Env = append(os.Environ(), childDir+"="+c.dir, childDir+"_PORT="+strconv.Itoa(c.port))
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.tb.Fatal(err)
	}
	// The child ends with its input, so also when this process is killed.
	if _, err := c.cmd.StdinPipe(); err != nil {
		c.tb.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.tb.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		c.tb.Fatalf("child server: %q, %v", line, err)
	}
}

// Kill kills the server as kill -9 does.
func (c *ChildServer) Kill() {
	_ = c.cmd.Process.Kill() // fails only if it is dead
	_ = c.cmd.Wait()         // reports that it was killed
}

// ServeChild is the child's main: it serves until it is killed.
func ServeChild() {
	opts := options(os.Getenv(childDir))
	port, err := strconv.Atoi(os.Getenv(childDir + "_PORT"))
	if err != nil {
		panic(err)
	}
	opts.Port = port
	srv, err := server.NewServer(&opts)
	if err != nil {
		panic(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(Patience) {
		panic("child server is not ready")
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
