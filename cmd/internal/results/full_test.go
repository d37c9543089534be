//go:build linux

package results

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fillDisk is TestDiskFull's own process: the limit is of all its files.
func fillDisk(dir string) error {
	d, err := Open(dir, manifest(4))
	if err != nil {
		return err
	}
	add := func(i int, message string) error {
		r := result(i)
		r.Message = message
		return d.Add(context.Background(), r, nil, nil)
	}
	if err := add(0, "first"); err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	// Go ignores SIGXFSZ, so that the write is cut and then fails.
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(d.size + 3000), Max: old.Max}); err != nil {
		return err
	}
	full := add(1, strings.Repeat("m", 5000))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	torn, err := os.ReadFile(filepath.Join(dir, resultsName))
	if err != nil {
		return err
	}
	if full == nil || d.Done("2") || !strings.Contains(string(torn), "mmm") {
		return fmt.Errorf("on a full disk: %w, done %v, %d bytes", full, d.Done("2"), len(torn))
	}
	return errors.Join(add(2, "third"), d.Close())
}

// TestDiskFull lets a result's line stop in the middle, as on a full disk,
// and then gives room again.
func TestDiskFull(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fullDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := content(t, filepath.Join(dir, resultsName))
	if strings.Count(got, "\n") != 2 || strings.Contains(got, "mmm") || !strings.Contains(got, "third") {
		t.Errorf("after the disk had room again:\n%s", got)
	}
}
