package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

func TestAServicesJailTellsHowTheAgentEnded(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		for _, c := range []struct {
			script string
			code   int
			signal syscall.Signal
		}{
			{"exit 0", 0, 0},
			{"exit 3", 3, 0},
			{"exit 137", 137, 0},
			{"kill -USR1 $$", 128 + int(syscall.SIGUSR1), syscall.SIGUSR1},
		} {
			exit, err := sandbox.Run(t.Context(), b, sh(c.script), sandbox.Streams{})
			if err != nil || exit.Code != c.code || exit.Signal != c.signal || exit.Stopped {
				t.Errorf("%q: got %+v, err %v; want code %d, signal %v", c.script, exit, err, c.code, c.signal)
			}
		}
	})
}

func TestStreamsOfAServicesJail(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		in := strings.Repeat("0123456789abcdef", 1<<16)
		var out, errs bytes.Buffer
		exit, err := sandbox.Run(t.Context(), b, sh("cat; echo done >&2"), sandbox.Streams{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs})
		if err != nil || !exit.Success() || out.String() != in || errs.String() != "done\n" {
			t.Errorf("got %d bytes, %q, %v, err %v", out.Len(), errs.String(), exit, err)
		}
	})
}

func TestListenersOfAServicesJail(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		p, err := sandbox.Start(t.Context(), b, sandbox.Spec{
			Args:    []string{"bash", "-c", "exec 7<>/dev/tcp/127.0.0.1/3128; echo hello >&7; cat <&7 >/dev/null"},
			Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:3128"},
		}, sandbox.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		c, err := p.Listeners()[0].Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(c).ReadString('\n'); got != "hello\n" {
			t.Errorf("got %q, err %v", got, err)
		}
		c.Close()
		if exit, err := p.Wait(); err != nil || !exit.Success() {
			t.Error(exit, err)
		}
	})
}

// Inside, nothing that a jail is made of can be seen but the socket that no
// process listens to any more; outside, nothing.
func TestTheRendezvousEndsWithTheFirstVisit(t *testing.T) {
	b := newEngine(t)
	b.change = func(c *sandbox.Command) {
		served := c.Jail.(mechanism.Served)
		served.Shown = []mechanism.Shown{{Data: []byte("zero")}, {Data: []byte("one")}}
		c.Jail = served
		at := slices.Index(c.Args, "--proc")
		c.Args = slices.Insert(c.Args, at, "--ro-bind", mechanism.Meet+"/1", "/shown")
	}
	spec := sh(`cat /shown; ls -A /jail/meet | wc -l; for fd in /proc/self/fd/*; do readlink $fd; done | grep -c 'memfd\|socket'
		touch /jail/meet/x 2>/dev/null || echo read-only`)
	out, exit, err := sandbox.Output(t.Context(), b, spec)
	if want := "one0\n0\nread-only\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, err %v, want %q", out, exit, err, want)
	}
	p, err := sandbox.Start(t.Context(), b, sh("sleep 1000"), sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	if seen := rendezvousDirs(); len(seen) > 0 {
		t.Errorf("while the jail runs: %v", seen)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStopIsPoliteToAServicesJail(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		r, w := io.Pipe()
		p, err := sandbox.Start(t.Context(), b, sh(`trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done`), sandbox.Streams{Stdout: w})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(r).ReadString('\n'); got != "ready\n" {
			t.Fatal(got, err)
		}
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if exit, err := p.Wait(); err != nil || exit.Code != 9 || !exit.Stopped {
			t.Error(exit, err)
		}
	})
}

func TestKillServicesJails(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) { sandboxtest.Kill(t, b, 3, nil) })
}

func TestRunnerOfAServicesJailKilled(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		t.Setenv(engineEnv, b.socket)
		sandboxtest.RunnerKilled(t, b, false)
	})
}

// What jailinit holds, the control socket above all, is out of the agent's
// reach.
func TestTheSupervisorCannotBeTraced(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		out, exit, err := sandbox.Output(t.Context(), b, sh("readlink -v /proc/$PPID/fd/4 2>&1; cat /proc/$PPID/environ 2>&1; true"))
		if err != nil || strings.Count(string(out), "Permission denied") != 2 {
			t.Errorf("got %q, %v, err %v", out, exit, err)
		}
	})
}

// An agent beside which jailinit is not pid 1 can stop it; the service ends
// the jail then.
func TestAStoppedSupervisor(t *testing.T) {
	t.Parallel()
	b := newEngine(t)
	b.init = true
	r, w := io.Pipe()
	// Before Start has returned it would break off the start.
	p, err := sandbox.Start(t.Context(), b, sh("read go; kill -STOP $PPID; echo ready; sleep 1000"), sandbox.Streams{StdinPipe: true, Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.Stdin(), "go")
	if got, err := bufio.NewReader(r).ReadString('\n'); got != "ready\n" {
		t.Fatal(got, err)
	}
	ended(t, p.Close)
	if exit, err := p.Wait(); err != nil || !exit.Stopped || exit.Signal != syscall.SIGKILL {
		t.Errorf("got %+v, err %v", exit, err)
	}
}

// ended wants end to succeed soon.
func ended(t *testing.T, end func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := end(ctx); err != nil {
		t.Error(err)
	}
}

// A client that dies alone takes the jail with it.
func TestTheClientIsKilled(t *testing.T) {
	engines(t, func(t *testing.T, b *engined) {
		// It says its own number, and becomes the client.
		b.change = func(c *sandbox.Command) {
			c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `echo $$; exec "$@"`, "sh"}, c.Args...)
		}
		r, w := io.Pipe()
		p, err := sandbox.Start(t.Context(), b, sh("echo ready; sleep 1000"), sandbox.Streams{Stdout: w})
		if err != nil {
			t.Fatal(err)
		}
		pid := 0
		if _, err := fmt.Fscanf(r, "%d\nready\n", &pid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended(t, func(ctx context.Context) error {
			select {
			case <-p.Done():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ended(t, p.Close)
	})
}

// A client that does not notice the end of its jail does not hold Wait.
func TestTheClientStays(t *testing.T) {
	t.Parallel()
	b := newEngine(t)
	b.change = func(c *sandbox.Command) {
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `"$@"; exec sleep 1000`, "sh"}, c.Args...)
	}
	out, exit, err := sandbox.Output(t.Context(), b, sh("echo out; exit 4"))
	if err != nil || string(out) != "out\n" || exit.Code != 4 {
		t.Errorf("got %q, %v, err %v", out, exit, err)
	}
}

// What cannot start says why, in the client's words where there was no jail,
// and leaves nothing.
func TestAServicesJailThatCannotStart(t *testing.T) {
	b := newEngine(t)
	for name, c := range map[string]struct {
		change func(*sandbox.Command)
		spec   sandbox.Spec
		detail []string
		err    error
	}{
		"no program inside": {nil, sandbox.Spec{Args: []string{"no-such-program"}}, nil, syscall.ENOENT},
		"no image": {func(c *sandbox.Command) { c.Args[5] = "/nowhere" }, sh("true"),
			[]string{"engine: no container", "see the engine's manual"}, nil},
		"no mechanism": {func(c *sandbox.Command) { c.Args = append(c.Args[:6:6], "--no-such-option") }, sh("true"), []string{"Unknown option"}, nil},
		"no rendezvous": {func(c *sandbox.Command) {
			for i, a := range c.Args {
				if a == mechanism.Meet {
					c.Args[i] = t.TempDir()
				}
			}
		}, sh("true"), []string{"/jail/init: ", "/jail/meet/control: no such file"}, nil},
		"no client":     {func(c *sandbox.Command) { c.Path = "/nowhere" }, sh("true"), nil, os.ErrNotExist},
		"wrong service": {func(c *sandbox.Command) { c.Args[2] = "/nowhere" }, sh("true"), []string{"/nowhere"}, nil},
	} {
		b.change = c.change
		p, err := sandbox.Start(t.Context(), b, c.spec, sandbox.Streams{})
		e, ok := errors.AsType[*sandbox.StartError](err)
		if !ok || (c.err != nil && !errors.Is(err, c.err)) {
			t.Errorf("%s: got %v, want %v", name, err, c.err)
		}
		for _, d := range c.detail {
			if ok && !strings.Contains(e.Detail, d) {
				t.Errorf("%s: got detail %q, want %q in it", name, e.Detail, d)
			}
		}
		if p != nil {
			p.Close(context.Background())
		}
	}
}

// A jail whose start is broken off at any moment leaves nothing.
func TestStopDuringTheStartOfAServicesJail(t *testing.T) {
	b := newEngine(t)
	for n := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*2*time.Millisecond)
		p, err := sandbox.Start(ctx, b, sh("sleep 1000"), sandbox.Streams{})
		if err == nil {
			_, err = p.Wait()
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d: got %v", n, err)
		}
	}
}

// A start that hangs ends by the timeout, or with its context, and leaves
// nothing.
func TestAServicesJailThatHangs(t *testing.T) {
	b := newEngine(t)
	hang := map[string]func(*sandbox.Command){
		"client": func(c *sandbox.Command) {
			c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "echo waiting >&2; exec sleep 1000"}
		},
		"inside": func(c *sandbox.Command) { c.Args = append(c.Args[:len(c.Args)-2:len(c.Args)-2], "sleep", "1000") },
	}
	for name, change := range hang {
		b.change = change
		impatient := changed{b, func(c *sandbox.Command) { c.StartTimeout = 300 * time.Millisecond }}
		began := time.Now()
		_, err := sandbox.Start(t.Context(), impatient, sh("true"), sandbox.Streams{})
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%s: the start ended after %v", name, took)
		}
		e, ok := errors.AsType[*sandbox.StartError](err)
		if !ok || (name == "client" && e.Detail != "waiting") || !strings.Contains(err.Error(), "did not come") {
			t.Errorf("%s: got %v", name, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := sandbox.Start(ctx, b, sh("true"), sandbox.Streams{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want the end of the context", name, err)
		}
		cancel()
	}
}

// Commands that end a jail may fail where it is dead anyway.
func TestTheEndFails(t *testing.T) {
	b := newEngine(t)
	b.change = func(c *sandbox.Command) {
		served := c.Jail.(mechanism.Served)
		served.End = append([][]string{{"/nowhere"}, {"/bin/false"}}, served.End...)
		c.Jail = served
	}
	if exit, err := sandbox.Run(t.Context(), b, sh("exit 5"), sandbox.Streams{}); err != nil || exit.Code != 5 {
		t.Error(exit, err)
	}
}
