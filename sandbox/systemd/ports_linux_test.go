package systemd_test

import (
	"bufio"
	"context"
	"io"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/systemd"
)

// asksAndServes talks to a low port, a datagram port, and then answers one
// caller.
const asksAndServes = `
import socket
def ask(kind, port):
    s = socket.socket(socket.AF_INET, kind)
    s.connect(("127.0.0.1", port))
    s.sendall(b"hello")
    print(port, s.recv(100).decode(), flush=True)
ask(socket.SOCK_STREAM, 81)
ask(socket.SOCK_DGRAM, 53)
server = socket.create_server(("127.0.0.1", 3000))
print("ready", flush=True)
c, _ = server.accept()
c.sendall(b"inside heard " + c.recv(100))
c.close()
`

// Ports below 1024 lead out of a unit's network as they do out of any jail's,
// and a server in it is reached.
func TestPortsAndDial(t *testing.T) {
	b := &systemd.Backend{}
	sandboxtest.Require(t, b)
	said, out := io.Pipe()
	defer said.Close()
	p, err := sandbox.Start(t.Context(), b, sandbox.Spec{
		Args: []string{"python3", "-c", asksAndServes}, Network: sandbox.NetworkGate, Dial: true,
		Listen: []string{"127.0.0.1:81", "udp/127.0.0.1:53"},
	}, sandbox.Streams{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	go func() { // ends with the jail
		<-p.Done()
		out.Close()
	}()
	for _, l := range p.Listeners() {
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = io.WriteString(c, "answer")
				c.Close()
			}
		}()
	}
	for _, c := range p.PacketConns() {
		go func() {
			if _, from, err := c.ReadFrom(make([]byte, 100)); err == nil {
				_, _ = c.WriteTo([]byte("answer"), from)
			}
		}()
	}
	lines := bufio.NewScanner(said)
	for _, want := range []string{"81 answer", "53 answer", "ready"} {
		if !lines.Scan() || lines.Text() != want {
			said.Close() // or the jail waits to be read
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
	c, err := p.Dial(t.Context(), "tcp", "127.0.0.1:3000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "inside heard hello" {
		t.Errorf("got %q, err %v", got, err)
	}
	if exit, err := p.Wait(); err != nil || !exit.Success() {
		t.Errorf("got %v, err %v", exit, err)
	}
}
