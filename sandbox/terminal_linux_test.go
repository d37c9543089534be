package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
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

// A screen is what has come out of a terminal, and waits for more.
type screen struct {
	*sandbox.Terminal
	t    *testing.T
	seen bytes.Buffer
}

func terminal(t *testing.T, p *sandbox.Process, args ...string) *screen {
	t.Helper()
	x, err := p.Terminal(t.Context(), args, []string{"TERM=dumb", "PS1=$ "}, 24, 80)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return &screen{Terminal: x, t: t}
}

// await reads until text has come, and forgets what was before its end.
func (s *screen) await(text string) string {
	s.t.Helper()
	b := make([]byte, 4096)
	for {
		if i := bytes.Index(s.seen.Bytes(), []byte(text)); i >= 0 {
			return string(s.seen.Next(i + len(text)))
		}
		n, err := s.Read(b)
		s.seen.Write(b[:n])
		if err != nil && !bytes.Contains(s.seen.Bytes(), []byte(text)) {
			s.t.Fatalf("waiting for %q: %v, after %q", text, err, s.seen.String())
		}
	}
}

func (s *screen) say(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		s.t.Fatalf("type %q: %v", text, err)
	}
}

// eachAgent runs a test with each backend, and what starts an agent there.
func eachAgent(t *testing.T, test func(t *testing.T, start func(script string) *sandbox.Process)) {
	t.Helper()
	each(t, func(t *testing.T, with with) {
		test(t, func(script string) *sandbox.Process {
			b, spec := with(sandbox.Spec{Args: []string{"bash", "-c", script}, Dial: true})
			return started(t, b, spec)
		})
	})
}

func TestTerminal(t *testing.T) {
	eachAgent(t, func(t *testing.T, start func(string) *sandbox.Process) {
		p := start("touch here; echo ready; sleep 100")
		s := terminal(t, p, "bash", "--norc")
		s.say("stty size; test -t 0 && ls; echo $TERM\n")
		s.await("24 80\r\n")
		s.await("here\r\n") // the agent's directory
		s.await("dumb\r\n")
		s.await("$ ")
		// What loops with a trap misses no signal, as a shell that reads or forks may.
		loops := func(trap, on string) {
			s.say("sh -c 'trap \"" + trap + "\" " + on + "; echo b''egun; while :; do sleep 0.02; done'\n")
			s.await("begun\r\n")
		}
		loops("stty size; exit", "WINCH")
		if err := s.Resize(50, 132); err != nil {
			t.Fatal(err)
		}
		s.await("50 132\r\n")
		s.await("$ ")
		loops("exit 130", "INT")
		s.say("\x03")
		s.await("$ ") // what is typed meanwhile is thrown away
		s.say("echo st''atus $?\n")
		s.await("status 130\r\n")
		s.say("exec sh -c 'exit 3'\n")
		if exit, err := s.Wait(); err != nil || exit.Code != 3 || exit.Signal != 0 {
			t.Errorf("got %v, err %v", exit, err)
		}
		if _, err := io.ReadAll(s); err != nil {
			t.Errorf("after the end: %v", err)
		}
		s = terminal(t, p, "sh", "-c", "kill -USR1 $$")
		if exit, err := s.Wait(); err != nil || exit.Signal != syscall.SIGUSR1 {
			t.Errorf("got %v, err %v", exit, err)
		}
	})
}

func TestTerminalSaysWhyNot(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	p := started(t, b, sandbox.Spec{Args: []string{"bash", "-c", "echo ready; sleep 100"}, Dial: true})
	open := func(args ...string) error {
		_, err := p.Terminal(t.Context(), args, nil, 24, 80)
		return err
	}
	for _, c := range []struct {
		args []string
		want error
	}{{[]string{"no-such-program"}, syscall.ENOENT}, {[]string{"/tmp"}, syscall.EACCES}, {[]string{"/etc/passwd"}, syscall.EACCES}} {
		if err := open(c.args...); !errors.Is(err, c.want) {
			t.Errorf("%q: got %v, want %v", c.args, err, c.want)
		}
	}
	if _, ok := errors.AsType[*sandbox.FieldError](open()); !ok {
		t.Error("without a program there was no such error")
	}
	var all []*screen
	for range 64 {
		all = append(all, terminal(t, p, "sleep", "100"))
	}
	if err := open("true"); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("one too many: %v", err)
	}
	for _, s := range all {
		s.Close()
	}
	awaitNoTerminals(t, p)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := open("true"); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the end: %v", err)
	}
	q := started(t, b, sh("echo ready; sleep 100"))
	_, err := q.Terminal(t.Context(), []string{"true"}, nil, 24, 80)
	if e, ok := errors.AsType[*sandbox.FieldError](err); !ok || e.Field != "Dial" {
		t.Errorf("without Dial: %v", err)
	}
}

// awaitNoTerminals waits until no other terminal is open in the jail than the
// one that looks.
func awaitNoTerminals(t *testing.T, p *sandbox.Process) {
	t.Helper()
	for end := time.Now().Add(slowtest.Limit(20 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		look := []string{"sh", "-c", `cd /dev/pts; me=$(tty); for f in [0-9]*; do test /dev/pts/$f = $me || echo -n "$f "; done; echo .`}
		x, err := p.Terminal(t.Context(), look, nil, 24, 80)
		got := "as many as there may be"
		if err == nil {
			s := &screen{Terminal: x, t: t}
			got = strings.TrimSuffix(s.await(".\r\n"), ".\r\n")
			x.Close()
		} else if !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
		if got == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("terminals %q are open", got)
		}
	}
}

// A terminal's program stands where the agent stands.
func TestTerminalIsBehindTheWalls(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	const look = `grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; ulimit -Ha; ulimit -Sa; readlink /proc/self/ns/*
touch /etc/x /proc/x 2>&1; echo $PWD $HOME $PATH $SECRET; ls -l /proc/self/fd | grep -v /dev/pts | grep -v pipe: | wc -l; echo end.
`
	p := started(t, b, sandbox.Spec{
		Args: []string{"bash", "-c", "(" + look + ") >/tmp/agent </dev/null; echo ready; sleep 100"}, Dial: true,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/agent", "SECRET=x"}, Dir: "/tmp",
	})
	s := terminal(t, p, "bash", "-c", "stty -onlcr; ("+look+"); cat /tmp/agent")
	inTerminal, ofAgent := s.await("end.\n"), s.await("end.\n")
	// The agent's standard input is a file, and its output another.
	cut := func(text string) string { return text[:strings.Index(text, "\n/tmp /home")+20] }
	if a, b := cut(inTerminal), cut(ofAgent); a != b {
		t.Errorf("in the terminal:\n%s\nthe agent:\n%s", a, b)
	}
	if !strings.Contains(ofAgent, "Seccomp:\t2") || !strings.Contains(ofAgent, "/tmp /home/agent /usr/bin:/bin x\n") {
		t.Errorf("the agent:\n%s", ofAgent)
	}
}

// Hanging up ends the program, and what would hang on.
func TestTerminalHangsUp(t *testing.T) {
	eachAgent(t, func(t *testing.T, start func(string) *sandbox.Process) {
		p := start("echo ready; sleep 100")
		s := terminal(t, p, "bash", "-c", "trap '' HUP TERM INT; echo r''eady $$; while :; do sleep 1; done")
		s.await("ready ")
		pid := strings.TrimSpace(s.await("\r\n"))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if exit, err := s.Wait(); err != nil || !exit.Stopped {
			t.Errorf("got %v, err %v", exit, err)
		}
		for end := time.Now().Add(slowtest.Limit(20 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
			look := terminal(t, p, "sh", "-c", "kill -0 "+pid+" 2>/dev/null && echo there. || echo gone.")
			if look.await(".\r\n") == "gone.\r\n" {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the program is still there")
			}
		}
	})
}

// The end of the jail ends its terminals, even while a user reads or types.
func TestTerminalEndsWithTheJail(t *testing.T) {
	eachAgent(t, func(t *testing.T, start func(string) *sandbox.Process) {
		p := start("echo ready; sleep 100")
		flood, deaf := terminal(t, p, "yes"), terminal(t, p, "sh", "-c", "stty raw -echo; echo r''eady; sleep 100")
		deaf.await("ready")
		var all sync.WaitGroup
		all.Go(func() {
			_, err := io.Copy(io.Discard, flood)
			if err != nil {
				t.Errorf("read: %v", err)
			}
		})
		all.Go(func() {
			for {
				if _, err := deaf.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
					return
				}
			}
		})
		idle := terminal(t, p, "yes") // its output has no reader
		time.Sleep(50 * time.Millisecond)
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := idle.Wait(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("wait: %v", err)
		}
		deaf.Close()
		all.Wait()
	})
}

// A client that reads a flood gets all of it, in order, and one that stops reading
// stops it.
func TestTerminalKeepsPace(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	p := started(t, b, sandbox.Spec{Args: []string{"bash", "-c", "echo ready; sleep 100"}, Dial: true})
	s := terminal(t, p, "sh", "-c", "stty -onlcr; seq 1 300000; echo end.")
	time.Sleep(100 * time.Millisecond)
	got := s.await("end.\n")
	var want bytes.Buffer
	for n := range 300000 {
		want.WriteString(strconv.Itoa(n + 1))
		want.WriteByte('\n')
	}
	if got != want.String()+"end.\n" {
		t.Errorf("%d bytes came, not the %d that were written", len(got), want.Len())
	}
}

// The agent may end the process that starts terminals: those that are open go
// on, and how they end is not known.
func TestTerminalWithoutItsStarter(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	p := started(t, b, sandbox.Spec{Dial: true, Args: []string{"bash", "-c", `for d in /proc/[0-9]*; do tr '\0' ' ' < $d/cmdline | grep -q '^/jail/init penstock-jail= att[e]nd' && break; done
echo ready; while test ! -e /tmp/go; do sleep 0.02; done; kill -KILL ${d#/proc/}; touch /tmp/done; sleep 100`}})
	s := terminal(t, p, "sh")
	s.say("touch /tmp/go; while test ! -e /tmp/done; do sleep 0.02; done; echo st''ill here\n")
	s.await("still here\r\n")
	if _, err := s.Wait(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("wait: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slowtest.Limit(20*time.Second))
	defer cancel()
	if _, err := p.Terminal(ctx, []string{"true"}, nil, 24, 80); !errors.Is(err, net.ErrClosed) {
		t.Errorf("another: %v", err)
	}
}
