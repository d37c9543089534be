package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// serving is a jail with a server on addresses.
func serving(t *testing.T, addresses ...string) *sandbox.Process {
	t.Helper()
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	return started(t, b, sandbox.Spec{Args: append([]string{jailinit.Path, "serve"}, addresses...), Dial: true})
}

// say sends text over a new connection and returns the answer.
func say(ctx context.Context, p *sandbox.Process, network, address, text string) (string, error) {
	c, err := p.Dial(ctx, network, address)
	if err != nil {
		return "", err
	}
	return exchange(c, text)
}

func exchange(c net.Conn, text string) (string, error) {
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestDial(t *testing.T) {
	addresses := []string{"127.0.0.1:3000", "127.5.5.5:3001", "unix:/tmp/s"}
	if ipv6("yes") != "" {
		addresses = append(addresses, "[::1]:3002")
	}
	p := serving(t, addresses...)
	for _, c := range []struct{ network, address, want string }{
		{"tcp", "127.0.0.1:3000", "5 bytes to tcp: hello"}, {"tcp4", "localhost:3000", "5 bytes to tcp: hello"},
		{"tcp", "0.0.0.0:3000", "5 bytes to tcp: hello"}, {"tcp", ":3000", "5 bytes to tcp: hello"},
		{"tcp", "127.5.5.5:3001", "5 bytes to tcp: hello"}, {"unix", "/tmp/s", "5 bytes to unix: hello"},
		{"tcp6", "localhost:3002", ipv6("5 bytes to tcp: hello")}, {"tcp", "localhost:3002", ipv6("5 bytes to tcp: hello")},
		{"tcp", "[::]:3002", ipv6("5 bytes to tcp: hello")},
	} {
		if got, err := say(t.Context(), p, c.network, c.address, "hello"); got != c.want || (err != nil) == (c.want != "") {
			t.Errorf("%s %s: got %q, err %v, want %q", c.network, c.address, got, err, c.want)
		}
	}
}

func TestDialSaysWhyNot(t *testing.T) {
	p := serving(t, "127.0.0.1:3000")
	for _, c := range []struct {
		network, address string
		want             error
	}{
		{"tcp", "127.0.0.1:3001", syscall.ECONNREFUSED}, {"tcp", "localhost:3001", syscall.ECONNREFUSED},
		{"unix", "/tmp/nothing", syscall.ENOENT}, {"unix", "/etc/passwd", syscall.ECONNREFUSED},
		{"tcp", "192.0.2.1:80", nil}, {"tcp", "example.org:80", nil}, {"tcp", "127.0.0.1:0", nil}, {"tcp", "127.0.0.1", nil},
		{"tcp4", "[::1]:80", nil}, {"tcp", "[::1%lo]:80", nil}, {"udp", "127.0.0.1:53", nil}, {"unix", "relative", nil},
		{"unix", "/" + strings.Repeat("x", 107), nil}, {"unix", "/a\x00b", nil}, {"unix", "@abstract", nil},
	} {
		_, err := p.Dial(t.Context(), c.network, c.address)
		if e, ok := errors.AsType[*net.OpError](err); !ok || e.Op != "dial" || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s %q: got %v, want %v", c.network, c.address, err, c.want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	if _, err := p.Dial(ctx, "tcp", "127.0.0.1:3000"); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Dial(t.Context(), "tcp", "127.0.0.1:3000"); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the end: %v", err)
	}
	q := started(t, &bwrap.Backend{}, sh("echo ready; sleep 100"))
	_, err := q.Dial(t.Context(), "tcp", "127.0.0.1:3000")
	if e, ok := errors.AsType[*sandbox.FieldError](err); !ok || e.Field != "Dial" {
		t.Errorf("without Dial: %v", err)
	}
}

// Many at once, while others wait for a server whose queue is full and are
// given up, in a jail that ends in the middle of it.
func TestDialAtOnce(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	p := started(t, b, sandbox.Spec{Dial: true, Args: []string{"bash", "-c",
		`coproc ` + jailinit.Path + ` serve 127.0.0.1:3000; read -u ${COPROC[0]} x; exec ` + jailinit.Path + ` full 3001`}})
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			text := fmt.Sprint("number ", n)
			want := fmt.Sprintf("%d bytes to tcp: %s", len(text), text)
			if got, err := say(t.Context(), p, "tcp", "127.0.0.1:3000", text); got != want {
				t.Errorf("got %q, err %v, want %q", got, err, want)
			}
		})
		if n%4 == 0 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				c, err := p.Dial(ctx, "tcp", "127.0.0.1:3001")
				if err == nil {
					defer c.Close() // one of the first, for which there was room
					<-ctx.Done()
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for range 10 {
		all.Go(func() {
			_, err := p.Dial(t.Context(), "tcp", "127.0.0.1:3001")
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
}

// The program in the jail can end what connects, or stop it, and nothing else
// comes of that. It cannot look into it.
func TestConnectorIsOutOfReach(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	const find = `for d in /proc/[0-9]*; do tr '\0' ' ' < $d/cmdline | grep -q '^/jail/init penstock-jail= att[e]nd' && break; done; pid=${d#/proc/}
`
	run := func(script string) *sandbox.Process {
		return started(t, b, sandbox.Spec{Args: []string{"bash", "-c", find + script}, Dial: true, Preset: sandbox.PresetDebug})
	}
	p := run(`exec 2>/dev/null
for f in fd/3 exe cwd; do readlink $d/$f && exit 9; done
for f in environ maps auxv syscall; do cat $d/$f && exit 9; done
(exec 7<>$d/mem) && exit 9; (exec 7<>$d/fd/0) && exit 9
test -n "$pid" && kill -0 $pid || exit 9
trap '' TERM; kill -TERM -1; kill -0 $pid || exit 9; echo ready; exec sleep 100`)
	if _, err := p.Dial(t.Context(), "tcp", "127.0.0.1:3000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after a polite signal: %v", err)
	}
	p = run(`trap 'exit 5' TERM; kill -STOP $pid; sleep 100 & echo ready; wait`)
	for range 30 { // more than the queue holds
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := p.Dial(ctx, "tcp", "127.0.0.1:3000"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped: got %v", err)
		}
		cancel()
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 5 {
		t.Errorf("stopped: %v, err %v", exit, err)
	}
	p = run(`kill -KILL $pid; echo ready; sleep 0.3; exit 6`)
	if _, err := p.Dial(t.Context(), "tcp", "127.0.0.1:3000"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("killed: got %v", err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 6 {
		t.Errorf("killed: %v, err %v", exit, err)
	}
}

// Without a jail, and with the network of the host, it is the host's loopback.
func TestDialWithoutAJail(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	spec := sandbox.Spec{Args: []string{self, "serve", "unix:" + path}, Workspace: t.TempDir(), Dial: true}
	p := started(t, &none.Backend{}, spec.Allow(none.Unenforced()...))
	if got, err := say(t.Context(), p, "unix", path, "hello"); got != "5 bytes to unix: hello" {
		t.Errorf("got %q, err %v", got, err)
	}
}
