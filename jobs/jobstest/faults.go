package jobstest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs/flaky"
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

// Proxy is a way to the server that can be cut, until the test ends.
func (s *Server) Proxy() *flaky.Proxy {
	s.tb.Helper()
	p, err := flaky.Listen(strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(p.Close)
	return p
}

// A ChildServer is a server in a process of its own.
type ChildServer struct {
	tb      testing.TB
	dir     string
	port    int
	cluster string // what it is told of its cluster; empty is none
	cmd     *exec.Cmd
}

// Child starts a server in a child process: this test binary again, see
// [IsChild].
func Child(tb testing.TB) *ChildServer {
	tb.Helper()
	c := &ChildServer{tb: tb, dir: tb.TempDir(), port: FreePort(tb)}
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
	c.cmd.Env = append(os.Environ(), childDir+"="+c.dir, childDir+"_PORT="+strconv.Itoa(c.port), childDir+"_CLUSTER="+c.cluster)
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
	join(&opts)
	if _, err := serve(opts, &complaints{}); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
