package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// A jail has ports below 1024, datagrams and whole networks, and the program
// in it has no capability for that.
func TestEveryKindOfPort(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	spec := sandbox.Spec{
		Network: sandbox.NetworkGate,
		Listen:  []string{"udp/127.0.0.1:53", "127.0.0.1:81", "0.0.0.0:443", "udp/0.0.0.0:5353", "127.0.0.1:32128"},
		Args: []string{"bash", "-c", `ask() { exec 7<>/dev/$1; echo "hello $1" >&7; head -n 1 <&7; }
ask udp/127.0.0.1/53; ask tcp/127.0.0.1/81; ask tcp/127.9.8.7/443; ask udp/127.0.0.1/5353; ask tcp/127.0.0.1/32128
` + ipv6(`ask tcp/::1/82; ask udp/::1/83`) + `
grep ^Cap /proc/self/status | cut -f2 | sort -u
/jail/init sandboxtest-probe listen 127.0.0.1:84`},
	}
	want := "udp/127.0.0.1/53 tcp/127.0.0.1/81 tcp/127.9.8.7/443 udp/127.0.0.1/5353 tcp/127.0.0.1/32128"
	if ipv6("yes") != "" {
		spec.Listen = append(spec.Listen, "[::]:82", "udp/[::1]:83")
		want += " tcp/::1/82 udp/::1/83"
	}
	var out bytes.Buffer
	p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	for _, l := range p.Listeners() {
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				b := make([]byte, 100)
				n, _ := c.Read(b)
				_, _ = fmt.Fprintf(c, "answer to %s", b[:n])
				c.Close()
			}
		}()
	}
	for _, c := range p.PacketConns() {
		go func() {
			b := make([]byte, 100)
			for n, from, err := c.ReadFrom(b); err == nil; n, from, err = c.ReadFrom(b) {
				_, _ = c.WriteTo(append([]byte("answer to "), b[:n]...), from)
			}
		}()
	}
	exit, err := p.Wait()
	text := ""
	for w := range strings.FieldsSeq(want) {
		text += "answer to hello " + w + "\n"
	}
	text += "0000000000000000\nEACCES\n"
	if err != nil || !exit.Success() || out.String() != text {
		t.Errorf("got %v, err %v and %q, want %q", exit, err, out.String(), text)
	}
	if _, _, err := p.PacketConns()[0].ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a packet connection outlived its jail: %v", err)
	}
}

// ipv6 returns s where jails have an IPv6 loopback.
func ipv6(s string) string {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return ""
	}
	return s
}

// A user without any privilege can open the same ports as root.
func TestPortsAsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user; as a user, the other tests do the same")
	}
	sandboxtest.Require(t, &bwrap.Backend{})
	dir, err := os.MkdirTemp("", "penstock-user-") //nolint:usetesting // another user must get into it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "test")
	data, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.WriteFile(binary, data, 0o755), os.Chmod(dir, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^(TestEveryKindOfPort|TestDial|TestConnectorIsOutOfReach)$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "PENSTOCK_TEST_REQUIRE=bwrap")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestEveryKindOfPort") || !strings.Contains(string(out), "--- PASS: TestDial") {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

func TestWithoutAJailPortsAreTheHosts(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1023", "udp/127.0.0.1:53", "0.0.0.0:32128", "[::]:32128"} {
		spec := sandbox.Spec{
			Args: []string{"true"}, Workspace: t.TempDir(), Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:32128", address},
		}
		_, err := sandbox.Start(t.Context(), &none.Backend{}, spec.Allow(none.Unenforced()...), sandbox.Streams{})
		if e, ok := errors.AsType[*sandbox.FieldError](err); !ok || e.Field != "Listen[1]" {
			t.Errorf("%s: got %v, want an error of field Listen[1]", address, err)
		}
	}
}

// The runner's privilege is used for its jail's network only.
func TestLowPortsOfTheHostAreNotOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root could open one")
	}
	spec := sandbox.Spec{Args: []string{"true"}, Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:81"}}
	spec = spec.Allow(none.Unenforced()...).Allow(sandbox.FeatureKill)
	_, err := sandbox.Start(t.Context(), pretender{"low port", mechanism.Contained{}}, spec, sandbox.Streams{})
	if e, ok := errors.AsType[*sandbox.StartError](err); !ok || !errors.Is(err, syscall.EACCES) || e.Step != "listen" {
		t.Errorf("got %v, want EACCES", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:81")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// started runs spec and waits for its first line, which has to be "ready".
func started(t *testing.T, b sandbox.Backend, spec sandbox.Spec) *sandbox.Process {
	t.Helper()
	r, w := io.Pipe()
	p, err := sandbox.Start(t.Context(), b, spec, sandbox.Streams{Stdout: w, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		p.Close(context.Background())
	})
	line := make([]byte, 6)
	_, err = io.ReadFull(r, line)
	go func() { _, _ = io.Copy(os.Stderr, r) }() // ends when r is closed
	if string(line) != "ready\n" {
		t.Fatalf("got %q, err %v", line, err)
	}
	return p
}
