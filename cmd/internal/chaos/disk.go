package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// A smallDisk is a file system of its own for the broker's store, so that it can be
// filled without harm to other programs. A fault that fills it holds mu.
type smallDisk struct {
	mu      sync.Mutex
	dir     string
	unmount func() error
}

// diskSource is the disk's name in tables of mounts.
const diskSource = "penstock-chaos"

// newDisk mounts a disk with room for so many jobs at dir.
func newDisk(dir string, jobs int) (*smallDisk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unmount, err := mount(dir, 64<<20+int64(jobs)<<18)
	if err != nil {
		return nil, fmt.Errorf("mount a small disk: %w", err)
	}
	return &smallDisk{dir: dir, unmount: unmount}, nil
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill writes until the disk is full.
func (d *smallDisk) fill() {
	f, err := os.Create(d.ballast())
	if err != nil {
		return // the disk is already full
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(zeros[:size])
		}
	}
}

func (d *smallDisk) free() {
	_ = os.Remove(d.ballast()) // this frees the space, or the file was never created
}

// close unmounts the disk and deletes its files.
func (d *smallDisk) close() error {
	if d == nil {
		return nil
	}
	return d.unmount()
}

// jailed reports whether a table of mounts is that of a process that sees a mount below
// dir: a jail. Every process sees our own disk.
func jailed(table, dir string) bool {
	for line := range strings.Lines(table) {
		if strings.Contains(line, dir) && !strings.Contains(line, " - tmpfs "+diskSource+" ") {
			return true
		}
	}
	return false
}
