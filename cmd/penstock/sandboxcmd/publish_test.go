package sandboxcmd

import (
	"net"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublication(t *testing.T) {
	for text, want := range map[string]string{
		"8080": "127.0.0.1:8080 8080", "8080:3000": "127.0.0.1:8080 3000", "0:3000": "127.0.0.1:0 3000", "0.0.0.0:80:3000": "0.0.0.0:80 3000",
		"localhost:8080": "localhost:8080 8080", "[::1]:8080:3000": "[::1]:8080 3000", "[::1]:8080": "[::1]:8080 8080",
		"": "", "0": "", "x": "", "8080:": "", "8080:0": "", "8080:x": "", "1:2:3": "", "70000": "", "a:b": "", "[::1]": "", ":8080": "",
	} {
		got := ""
		if address, port, err := publication(text); err == nil {
			got = address + " " + strconv.Itoa(port)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// Where one port cannot be had, the others are given back.
func TestPortsAreOpenedTogether(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	port := func(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }
	if _, err := openPorts([]string{port(free), port(taken)}); cli.Code(err) != cli.ExitUsage {
		t.Errorf("a port that is taken: %v", err)
	}
	opened, err := openPorts([]string{port(free)})
	if err != nil {
		t.Errorf("the first port was not given back: %v", err)
	}
	opened.close()
}
