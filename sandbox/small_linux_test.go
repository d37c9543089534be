//go:build !race

package sandbox_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// What stays in the jail for Dial costs less memory than anything that would
// be asked for it.
func TestConnectorIsSmall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may look into the process")
	}
	p := serving(t, "127.0.0.1:3000")
	for range 100 {
		if _, err := say(t.Context(), p, "tcp", "127.0.0.1:3000", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	sizes := connectors(t)
	if len(sizes) != 1 {
		t.Fatalf("found %d processes instead of one", len(sizes))
	}
	t.Logf("%d KiB, its share of the program's own pages included", sizes[0])
	if sizes[0] > 4<<10 {
		t.Errorf("it needs %d KiB, more than 4 MiB", sizes[0])
	}
}

// The connector gives back what it has of the program's file, megabytes in a large
// program, a while after it was busy.
func TestAnIdleConnectorGivesMemoryBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may look into the process")
	}
	p := serving(t, "127.0.0.1:3000")
	if _, err := say(t.Context(), p, "tcp", "127.0.0.1:3000", "hello"); err != nil {
		t.Fatal(err)
	}
	const little = 512 // KiB; on a busy machine it may have given back the rest already
	busy, begin := resident(t), time.Now()
	for resident(t) > max(busy/2, little) {
		if time.Since(begin) > slowtest.Limit(10*time.Second) {
			t.Fatalf("%d KiB of %d are there", resident(t), busy)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, err := say(t.Context(), p, "tcp", "127.0.0.1:3000", "hello"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// resident returns the KiB of files in the memory of the one connector.
func resident(t *testing.T) int {
	t.Helper()
	found := connectorDirs(t)
	if len(found) != 1 {
		t.Fatalf("found %d processes instead of one", len(found))
	}
	status, err := os.ReadFile(found[0] + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nRssFile:")
	size, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// connectors returns the proportional sizes in KiB of this program's.
func connectors(t *testing.T) (sizes []int) {
	t.Helper()
	for _, dir := range connectorDirs(t) {
		rollup, err := os.ReadFile(dir + "/smaps_rollup")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(rollup), "\nPss:")
		size, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// connectorDirs lists the directories in /proc of this program's connectors.
func connectorDirs(t *testing.T) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		dir := filepath.Dir(f)
		b, _ := os.ReadFile(f)
		exe, err := os.Stat(dir + "/exe")
		if err != nil || !os.SameFile(self, exe) || !strings.HasSuffix(string(b), "\x00attend\x00") {
			continue
		}
		found = append(found, dir)
	}
	return found
}

// A hundred megabytes without an end of line pass through a small window. The race
// detector has pools forget some of what they are given.
func TestAFloodNeedsNoMemory(t *testing.T) {
	each(t, func(t *testing.T, with with) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		spec := sh("head -c 100000000 /dev/zero | tr '\\0' x")
		spec.Limits.OutputRate = 1 << 30
		b, spec := with(spec)
		count := &counter{}
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{Stdout: count})
		runtime.ReadMemStats(&after)
		if err != nil || !exit.Success() || count.n != 100_000_000 {
			t.Errorf("got %v and %d bytes, err %v", exit, count.n, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
			t.Errorf("%d MiB were allocated", grown>>20)
		}
	})
}

type counter struct{ n int }

func (c *counter) Write(p []byte) (int, error) {
	if strings.Trim(string(p[:1]), "x") == "" {
		c.n += len(p)
	}
	return len(p), nil
}
