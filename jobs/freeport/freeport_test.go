package freeport_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/freeport"
)

const child = "PENSTOCK_TEST_PORTS"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	for range 501 { // more than a block
		port, err := freeport.Port()
		fmt.Println(port, err)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // lives until its input ends
}

// Servers that are down for a moment have their ports to themselves.
func TestProcessesGetDifferentPorts(t *testing.T) {
	const processes = 10 // of two blocks each
	t.Setenv(child, "yes")
	seen := map[string]int{}
	for i := range processes {
		cmd := exec.Command(os.Args[0])
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			_ = cmd.Wait() // its ports were read
		})
		var port, failed string
		for range 501 {
			if _, err := fmt.Fscanln(out, &port, &failed); err != nil || failed != "<nil>" {
				t.Fatalf("process %d: port %q, %s, %v", i, port, failed, err)
			}
			if other, taken := seen[port]; taken {
				t.Fatalf("processes %d and %d have port %s", other, i, port)
			}
			seen[port] = i
		}
	}
}

func TestAddress(t *testing.T) {
	address, err := freeport.Address()
	if err != nil || !strings.HasPrefix(address, "127.0.0.1:") || len(address) != len("127.0.0.1:12345") {
		t.Errorf("got %q, %v", address, err)
	}
}
