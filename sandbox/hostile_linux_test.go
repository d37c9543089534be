package sandbox_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/none"
	"golang.org/x/sys/unix"
)

const hostileInit = "hostile-init"

// A pretender is a backend whose first program is not jailinit.
type pretender struct {
	mode      string
	mechanism mechanism.Mechanism
}

func (pretender) Name() string { return "pretender" }

func (pretender) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (pretender) Check(context.Context) ([]sandbox.Feature, error) { return nil, nil }

func (b pretender) Command(sandbox.Spec) (*sandbox.Command, error) {
	self, err := os.Executable()
	return &sandbox.Command{Path: self, Args: []string{hostileInit, b.mode}, Jail: b.mechanism}, err
}

func (b pretender) start(t *testing.T, spec sandbox.Spec) (*sandbox.Process, error) {
	spec.Args = []string{"none"}
	return sandbox.Start(t.Context(), b, spec.Allow(none.Unenforced()...).Allow(sandbox.FeatureKill), sandbox.Streams{})
}

// hostile speaks for a jail, and lies.
func hostile(mode string) {
	const control = mechanism.ControlFD
	send := func(fd int, text string, rights ...int) {
		_ = unix.Sendmsg(fd, []byte(text), unix.UnixRights(rights...), nil, unix.MSG_NOSIGNAL)
	}
	_, _ = unix.Write(mechanism.StatusFD, []byte(`{"child-pid": 1}`)) // not its child
	dir, _ := unix.Open("/", unix.O_RDONLY, 0)
	many := make([]int, 100)
	for i := range many {
		many[i] = dir
	}
	switch mode {
	case "exits":
		return
	case "stays":
		send(control, "ready")
		send(control, "running\x001")
		time.Sleep(time.Hour)
	case "does not stay":
		send(control, "ready")
	case "garbage first":
		send(control, "\xff\xff\x00\x00ready")
	case "directory for a listener":
		send(control, "ready", dir)
	case "too many":
		send(control, "ready", many...)
	case "too few":
		send(control, "ready")
	case "two to bind":
		send(control, "bind\x00127.0.0.1:81", dir, dir)
	case "directory to bind":
		send(control, "bind\x00127.0.0.1:81", dir)
	case "low port":
		s, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		send(control, "bind\x00127.0.0.1:81", s)
		b := make([]byte, 10)
		n, _ := unix.Read(control, b)
		send(control, "error\x00listen\x00"+string(b[:n])+"\x00127.0.0.1:81")
	default:
		pair, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
		send(control, "ready", pair[0])
		unix.Close(pair[0])
		unix.Close(control) // as if the agent ran
		lie(mode, pair[1], func(text string, rights ...int) { send(pair[1], text, rights...) }, many)
		time.Sleep(time.Hour)
	}
}

// lie answers the first request.
func lie(mode string, requests int, send func(string, ...int), many []int) {
	b := make([]byte, 512)
	n, _ := unix.Read(requests, b)
	id, _, _ := strings.Cut(string(b[:n]), "\x00")
	next, _ := strconv.Atoi(id)
	stream, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	datagram, _ := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	pair, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	switch mode {
	case "garbage":
		send("\x00\xff garbage")
	case "long":
		send(id + "\x00" + strings.Repeat("0", 4000))
	case "empty":
		send("")
	case "directory":
		send(id+"\x000", many[0])
	case "no descriptor":
		send(id + "\x000")
	case "two descriptors":
		send(id+"\x000", stream, stream)
	case "hundred descriptors":
		send(id+"\x000", many...)
	case "descriptor and error":
		send(id+"\x00111", stream)
	case "not asked":
		send(strconv.Itoa(next+1)+"\x000", stream)
	case "not connected":
		send(id+"\x000", stream)
	case "listener":
		_ = unix.Listen(stream, 1)
		send(id+"\x000", stream)
	case "datagrams":
		_ = unix.Connect(datagram, &unix.SockaddrInet4{Port: 3000, Addr: [4]byte{127, 0, 0, 1}})
		send(id+"\x000", datagram)
	case "another family":
		send(id+"\x000", pair[0])
	case "another server":
		l, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		_ = unix.Listen(l, 1)
		at, _ := unix.Getsockname(l)
		at.(*unix.SockaddrInet4).Addr = [4]byte{127, 0, 0, 1}
		_ = unix.Connect(stream, at)
		send(id+"\x000", stream)
	case "ends":
		unix.Close(requests)
	case "silent":
	}
}

// Whatever speaks for a jail, a start ends with an error and nothing is left.
func TestHostileFirstProgram(t *testing.T) {
	for _, mode := range []string{
		"exits", "garbage first", "directory for a listener", "too many", "too few", "two to bind", "directory to bind",
	} {
		open := descriptors(t)
		p, err := pretender{mode, mechanism.Contained{}}.start(t, sandbox.Spec{Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:81"}})
		if _, ok := errors.AsType[*sandbox.StartError](err); !ok || p != nil {
			t.Errorf("%s: got %v, want a StartError", mode, err)
		}
		if now := descriptors(t); now > open {
			t.Errorf("%s: %d descriptors are open, %d were", mode, now, open)
		}
	}
}

// A first program that stays as a supervisor, or does not, where the mechanism says
// otherwise, is not that of this mechanism.
func TestAnotherMechanismsFirstProgram(t *testing.T) {
	for mode, m := range map[string]mechanism.Mechanism{"stays": mechanism.Contained{}, "does not stay": mechanism.Supervised{}} {
		open := descriptors(t)
		p, err := pretender{mode, m}.start(t, sandbox.Spec{})
		if _, ok := errors.AsType[*sandbox.StartError](err); !ok || p != nil || !strings.Contains(err.Error(), "stay") {
			t.Errorf("%s: got %v, want a StartError", mode, err)
		}
		if now := descriptors(t); now > open {
			t.Errorf("%s: %d descriptors are open, %d were", mode, now, open)
		}
	}
}

// Whatever answers, Dial returns nothing that was not asked for.
func TestHostileConnector(t *testing.T) {
	for _, mode := range []string{
		"garbage", "long", "empty", "directory", "no descriptor", "two descriptors", "hundred descriptors", "descriptor and error",
		"not asked", "not connected", "listener", "datagrams", "another family", "another server", "ends", "silent",
	} {
		open := descriptors(t)
		p, err := pretender{mode, mechanism.Contained{}}.start(t, sandbox.Spec{Dial: true})
		if err != nil {
			t.Fatal(err)
		}
		timeout := 10 * time.Second
		if mode == "silent" {
			timeout = 50 * time.Millisecond
		}
		for n := range 2 { // what was broken stays broken
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			c, err := p.Dial(ctx, "tcp", "127.0.0.1:3000")
			late := errors.Is(err, context.DeadlineExceeded)
			if _, ok := errors.AsType[*net.OpError](err); !ok || c != nil || (n == 0 && late != (mode == "silent")) {
				t.Errorf("%s: got %v, err %v", mode, c, err)
			}
			timeout = 50 * time.Millisecond // the second request is never answered
			cancel()
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if now := descriptors(t); now > open {
			t.Errorf("%s: %d descriptors are open, %d were", mode, now, open)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
