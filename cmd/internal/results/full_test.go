//go:build linux

package results

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDiskFull lets a result's line stop in the middle, as on a full disk,
// and then gives room again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	d := openDir(t, dir, manifest(4))
	fill(t, d, 0, 2)
	whole := content(t, filepath.Join(dir, "results.jsonl"))

	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	// Go ignores SIGXFSZ, so that the write is cut and then fails.
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(len(whole) + 3000), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	long := result(2)
	long.Message = strings.Repeat("m", 5000)
	err := d.Add(t.Context(), long, nil, nil)
	if back := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); back != nil {
		t.Fatal(back)
	}
	if err == nil || d.Done("3") {
		t.Fatalf("Add on a full disk: %v, done %v", err, d.Done("3"))
	}
	if got := content(t, filepath.Join(dir, "results.jsonl")); len(got) <= len(whole) {
		t.Fatalf("nothing was torn: the test shows nothing")
	}
	fill(t, d, 3, 4)
	got := content(t, filepath.Join(dir, "results.jsonl"))
	if !strings.HasPrefix(got, whole) || strings.Count(got, "\n") != 3 || strings.Contains(got, "mmm") {
		t.Errorf("after the disk had room again:\n%s", got)
	}
}
