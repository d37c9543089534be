package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	insideMain()
	serveEngine()
	if socket := os.Getenv(engineEnv); socket != "" {
		sandboxtest.ServeRunner(&engined{socket: socket}, nil)
	}
	goleak.VerifyTestMain(m)
}

// with returns a backend, and what a Spec has to be for it.
type with = func(sandbox.Spec) (sandbox.Backend, sandbox.Spec)

// backends returns those that work here, with what a Spec has to allow.
func backends(t *testing.T) map[string]with {
	t.Helper()
	m := map[string]with{
		"none": func(s sandbox.Spec) (sandbox.Backend, sandbox.Spec) {
			if s.Workspace == "" {
				s.Workspace = t.TempDir()
			}
			return &none.Backend{}, s.Allow(none.Unenforced()...)
		},
	}
	b := &bwrap.Backend{}
	if _, err := b.Check(t.Context()); err != nil {
		t.Logf("without bwrap: %v", err)
	} else {
		m["bwrap"] = func(s sandbox.Spec) (sandbox.Backend, sandbox.Spec) { return b, s }
	}
	return m
}

// each runs a test with each backend.
func each(t *testing.T, f func(t *testing.T, with with)) {
	t.Helper()
	for name, with := range backends(t) {
		t.Run(name, func(t *testing.T) { f(t, with) })
	}
}

// dialed also runs f with a process of ours that stays inside next to the program:
// the program's life and its streams must be the same.
func dialed(t *testing.T, f func(t *testing.T, with with)) {
	t.Helper()
	each(t, f)
	for name, plain := range backends(t) {
		t.Run(name+" with Dial", func(t *testing.T) {
			f(t, func(s sandbox.Spec) (sandbox.Backend, sandbox.Spec) {
				s.Dial = true
				return plain(s)
			})
		})
	}
}

func sh(script string) sandbox.Spec { return sandbox.Spec{Args: []string{"sh", "-c", script}} }

func TestRunReportsHowTheProgramEnded(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		for _, c := range []struct {
			script string
			code   int
			signal syscall.Signal
		}{
			{"exit 0", 0, 0},
			{"exit 3", 3, 0},
			{"kill -USR1 $$", 128 + int(syscall.SIGUSR1), syscall.SIGUSR1},
		} {
			b, spec := with(sh(c.script))
			exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{})
			if err != nil || exit.Code != c.code || exit.Signal != c.signal || exit.Stopped {
				t.Errorf("%q: got %v (%+v), err %v; want code %d", c.script, exit, exit, err, c.code)
			}
		}
	})
}

func TestStreamsCarryEverything(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		in := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB: more than any pipe holds
		var out, errs bytes.Buffer
		b, spec := with(sh("cat; echo done >&2"))
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs})
		if err != nil || !exit.Success() {
			t.Fatal(exit, err)
		}
		if out.String() != in || errs.String() != "done\n" {
			t.Errorf("got %d bytes out and %q, want %d and done", out.Len(), errs.String(), len(in))
		}
	})
}

func TestStdinThatNeverEndsDoesNotHoldWait(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		r, w := io.Pipe()
		defer w.Close()
		b, spec := with(sh("exit 4"))
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{Stdin: r})
		if err != nil || exit.Code != 4 {
			t.Error(exit, err)
		}
	})
}

func TestStdinPipe(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		pr, pw := io.Pipe()
		b, spec := with(sh(`while read l; do echo "got $l"; done; echo end`))
		p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{StdinPipe: true, Stdout: pw})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, err := p.Wait(); pw.CloseWithError(err) }()
		lines := bufio.NewReader(pr)
		for _, word := range []string{"a", "b"} {
			fmt.Fprintln(p.Stdin(), word)
			if got, err := lines.ReadString('\n'); got != "got "+word+"\n" {
				t.Fatalf("got %q, err %v", got, err)
			}
		}
		p.Stdin().Close()
		if got, err := lines.ReadString('\n'); got != "end\n" {
			t.Fatalf("got %q, err %v", got, err)
		}
		if exit, err := p.Wait(); err != nil || !exit.Success() {
			t.Error(exit, err)
		}
	})
}

// Without a jail the ports are the host's. Linux gives 32128 to no connection.
func TestListenersAcceptWhatConnectsInside(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		spec := sandbox.Spec{
			Args:    []string{"bash", "-c", `for p in 32128 32129; do exec 7<>/dev/tcp/127.0.0.1/$p; echo hello $p >&7; cat <&7; done`},
			Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:32128", "127.0.0.1:32129"},
		}
		var out bytes.Buffer
		b, spec := with(spec)
		p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.Background())
		for i, l := range p.Listeners() {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			got, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Fprintf(c, "answer %d to %s", i, got)
			c.Close()
		}
		if exit, err := p.Wait(); err != nil || !exit.Success() {
			t.Error(exit, err)
		}
		if got, want := out.String(), "answer 0 to hello 32128\nanswer 1 to hello 32129\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, err := p.Listeners()[0].Accept(); err == nil {
			t.Error("a listener outlived its jail")
		}
	})
}

func TestStopIsPoliteFirst(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		pr, pw := io.Pipe()
		b, spec := with(sh(`trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done`))
		p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{Stdout: pw})
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(pr)
		if got, err := lines.ReadString('\n'); got != "ready\n" {
			t.Fatal(got, err)
		}
		go func() { _, err := p.Wait(); pw.CloseWithError(err) }()
		stopped := make(chan error)
		go func() { stopped <- p.Stop(context.Background()) }()
		if got, err := lines.ReadString('\n'); got != "bye\n" {
			t.Error(got, err)
		}
		go func() { _, _ = io.Copy(io.Discard, pr) }()
		if err := errors.Join(<-stopped, p.Stop(context.Background()), p.Close(context.Background())); err != nil {
			t.Error(err)
		}
		if exit, err := p.Wait(); err != nil || exit.Code != 9 || !exit.Stopped {
			t.Error(exit, err)
		}
	})
}

// A bare backend runs the program as it is, without a jail.
type bare struct{}

func (bare) Name() string { return "bare" }

func (bare) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (bare) Check(context.Context) ([]sandbox.Feature, error) { return nil, nil }

func (bare) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	return &sandbox.Command{Path: "/bin/sh", Args: spec.Args, Env: spec.Env}, nil
}

func TestStopIsPoliteToAProgramWithoutAJail(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	spec := sh(`trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done`).Allow(none.Unenforced()...).Allow(sandbox.FeatureKill)
	p, err := sandbox.Start(t.Context(), bare{}, spec, sandbox.Streams{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(r).ReadString('\n'); got != "ready\n" {
		t.Fatal(got, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 9 || !exit.Stopped {
		t.Error(exit, err)
	}
}

func TestStopKillsAfterTheGrace(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		spec := sh(`trap "" TERM; echo ready; while :; do sleep 0.05; done`)
		spec.Grace = 200 * time.Millisecond
		b, spec := with(spec)
		r, w := io.Pipe()
		started := time.Now()
		p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{Stdout: w})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := p.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		// A second is plenty, unless the machine is so busy that all takes long.
		most := spec.Grace + max(time.Second, 10*begin.Sub(started))
		if took := time.Since(begin); took < spec.Grace || took > most {
			t.Errorf("took %v with a grace of %v", took, spec.Grace)
		}
		if exit, _ := p.Wait(); exit.Signal != syscall.SIGKILL || !exit.Stopped {
			t.Errorf("got %+v", exit)
		}
	})
}

func TestContextEndsTheJail(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		b, spec := with(sh(`sleep 60`))
		p, err := sandbox.Start(ctx, b, spec, sandbox.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		if exit, err := p.Wait(); !errors.Is(err, cause) || !exit.Stopped {
			t.Errorf("got %v, %v", exit, err)
		}
		if _, err := sandbox.Start(ctx, b, spec, sandbox.Streams{}); !errors.Is(err, cause) {
			t.Errorf("start with an ended context: %v", err)
		}
	})
}

func TestWhatCannotStartIsNamed(t *testing.T) {
	dialed(t, func(t *testing.T, with with) {
		for _, c := range []struct {
			spec sandbox.Spec
			step string
			err  error
		}{
			{sandbox.Spec{Args: []string{"no-such-program"}}, "execute", syscall.ENOENT},
			{sandbox.Spec{Args: []string{"/etc/passwd"}}, "execute", syscall.EACCES},
			{sandbox.Spec{Args: []string{"true"}, Dir: "/workspace/nowhere"}, "directory", syscall.ENOENT},
			{sandbox.Spec{Args: []string{"true"}, Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:32128", "127.0.0.1:32128"}}, "listen", syscall.EADDRINUSE},
		} {
			b, spec := with(c.spec)
			p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{})
			e, ok := errors.AsType[*sandbox.StartError](err)
			if !ok || e.Step != c.step || !errors.Is(err, c.err) {
				t.Errorf("%v: got %v, want step %s and %v", c.spec.Args, err, c.step, c.err)
			}
			if p != nil {
				p.Close(context.Background())
			}
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	each(t, func(t *testing.T, with with) {
		b, spec := with(sh("head -c 17000000 /dev/zero"))
		out, exit, err := sandbox.Output(t.Context(), b, spec)
		if len(out) != 16<<20 || err == nil || !exit.Success() {
			t.Errorf("got %d bytes, %v, err %v", len(out), exit, err)
		}
	})
}

func TestABackendThatWrapsAnother(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintln(min(19, 20-own+15)) // the system call counts the other way
	out, exit, err := sandbox.Output(t.Context(), nice{b}, sandbox.Spec{Args: []string{"nice"}})
	if err != nil || string(out) != want {
		t.Errorf("got %q, %v, err %v, want %q", out, exit, err, want)
	}
}
