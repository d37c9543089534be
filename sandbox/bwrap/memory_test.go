package bwrap_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// BenchmarkIdle measures the memory of the processes that exist because of an
// idle jail, without the program in it: what is shared counts in parts (PSS).
func BenchmarkIdle(b *testing.B) {
	backend := &bwrap.Backend{Init: program(b)}
	sandboxtest.Require(b, backend)
	for name, dial := range map[string]bool{"plain": false, "dial": true} {
		b.Run(name, func(b *testing.B) {
			least := 0
			// What all jails of a program share, its reaper, is here since the
			// trial that Require has made.
			shared := below(os.Getpid())
			for b.Loop() {
				p, err := sandbox.Start(b.Context(), backend, sandbox.Spec{Args: []string{"sleep", "1000"}, Dial: dial}, sandbox.Streams{})
				if err != nil {
					b.Fatal(err)
				}
				if dial { // it is there, and has answered once
					if c, err := p.Dial(b.Context(), "tcp", "127.0.0.1:1"); err == nil {
						closed(b, c)
					}
				}
				if m := below(os.Getpid()) - shared; least == 0 || m < least {
					least = m
				}
				if err := p.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(least), "KiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func closed(b *testing.B, c net.Conn) {
	b.Helper()
	if err := c.Close(); err != nil {
		b.Error(err)
	}
}

// below adds the proportional memory of a process's descendants in KiB,
// without that of sleep.
func below(parent int) (sum int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) < 2 || f[1] != strconv.Itoa(parent) {
			continue
		}
		if !strings.HasSuffix(name, "(sleep") {
			sum += proportional(pid)
		}
		sum += below(pid)
	}
	return sum
}

func proportional(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}
