package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// published makes the port of p reachable and returns where. The test fails
// if Publish has not returned what is wanted when it ends.
func published(t *testing.T, ctx context.Context, p *sandbox.Process, port int, want error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Publish(ctx, l, port) }()
	t.Cleanup(func() {
		p.Close(context.Background())
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("Publish returned %v, want %v", err, want)
		}
	})
	return l.Addr().String()
}

// Servers that people use are reached from outside and from inside.
func TestPublishServers(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	for _, c := range []struct{ name, program, serve, ask string }{
		{"node", "node", `exec node -e 'require("http").createServer((q,r)=>r.end("hello "+q.url)).listen(3000,"localhost",()=>console.log("ready"))'`,
			`require("http").get("http://localhost:3000/x",r=>r.pipe(process.stdout))`},
		{"python", "/usr/bin/python3", `mkdir d; echo -n 'hello /x' > d/x; cd d; /usr/bin/python3 -m http.server 3000 --bind 127.0.0.1 2>/dev/null >&2 &
until (: </dev/tcp/127.0.0.1/3000) 2>/dev/null; do sleep 0.05; done; test "$(head -c 8 <(/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:3000/x").read().decode())'))" = 'hello /x' && echo ready; wait`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.program); err != nil {
				if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), c.name) {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			p := started(t, b, sandbox.Spec{Args: []string{"bash", "-c", c.serve}, Dial: true})
			at := published(t, context.Background(), p, 3000, nil)
			for range 3 {
				r, err := http.Get("http://" + at + "/x")
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || string(got) != "hello /x" {
					t.Errorf("got %q, err %v", got, err)
				}
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// Two hundred at once, each with more than a pipe holds, and each half ends
// on its own.
func TestPublishAtOnce(t *testing.T) {
	at := published(t, context.Background(), serving(t, "127.0.0.1:3000"), 3000, nil)
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			text := strings.Repeat(fmt.Sprintf("%03d ", n), 64<<10)
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Error(err)
				return
			}
			want := fmt.Sprintf("%d bytes to tcp: %s", len(text), text)
			if got, err := exchange(c, text); got != want || err != nil {
				t.Errorf("got %d bytes, err %v, want %d", len(got), err, len(want))
			}
		})
	}
	all.Wait()
}

func TestPublishEnds(t *testing.T) {
	enough := errors.New("enough")
	t.Run("with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		at := published(t, ctx, serving(t, "127.0.0.1:3000"), 3000, enough)
		c := open(t, at)
		cancel(enough)
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a connection goes on: %d bytes, err %v", n, err)
		}
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			t.Error("the listener is open")
		}
	})
	t.Run("with the jail", func(t *testing.T) {
		b := &bwrap.Backend{}
		sandboxtest.Require(t, b)
		// What was sent last arrives although its sender has ended.
		p := started(t, b, sandbox.Spec{Dial: true, Args: []string{"bash", "-c",
			`coproc /jail/init serve 127.0.0.1:3000; read -u ${COPROC[0]} x; echo ready; while test ! -e /tmp/end; do sleep 0.02; done`}})
		at := published(t, context.Background(), p, 3000, nil)
		c := open(t, at)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a connection goes on: %d bytes, err %v", n, err)
		}
	})
	t.Run("at once without a server", func(t *testing.T) {
		at := published(t, context.Background(), serving(t, "127.0.0.1:3000"), 3001, nil)
		c, err := net.Dial("tcp", at)
		if err == nil { // else the reset was faster than the end of the handshake
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(slowtest.Limit(10 * time.Second))); err != nil {
				t.Fatal(err)
			}
			_, err = c.Read(make([]byte, 1))
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v, want a reset", err)
		}
	})
	t.Run("before it begins", func(t *testing.T) {
		p := serving(t, "127.0.0.1:3000")
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(t.Context(), l, 65536); err == nil {
			t.Error("port 65536 was accepted")
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open: %v", err)
		}
		if err := p.Publish(t.Context(), l, 3000); err != nil {
			t.Errorf("with a closed listener: %v", err)
		}
		q := started(t, &bwrap.Backend{}, sh("echo ready; sleep 100"))
		if _, ok := errors.AsType[*sandbox.FieldError](q.Publish(t.Context(), l, 3000)); !ok {
			t.Error("without Dial: no error of the field")
		}
	})
}

// open connects and waits until that is joined with the inside, if it will be.
func open(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(slowtest.Limit(10 * time.Second))); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(bytes.Repeat([]byte("x"), 100))
	return c
}
