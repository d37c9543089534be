package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process swaps files and directories for links, and for files that would block or
// flood a reader, while the host collects. With isolation none an earlier agent's
// leftover process may do that.
func TestNothingOutsideIsEverRead(t *testing.T) {
	t.Parallel()
	const secret = "S3CRET-outside"
	outside := t.TempDir()
	write(t, outside, "file", secret)
	write(t, outside, "dir/a.go", secret)
	write(t, outside, ".gitignore", secret)
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), "mkdir -p deep/er; echo x > deep/er/a.go; echo y > victim; cp .gitignore deep/.gitignore")
	symlink(t, filepath.Join(outside, "file"), filepath.Join(w.Dir(), "link-file"))
	symlink(t, outside+"/dir", filepath.Join(w.Dir(), "link-dir"))
	symlink(t, outside+"/.gitignore", filepath.Join(w.Dir(), "link-ignore"))
	special(t, w.Dir())
	stop := swapping(t, w.Dir(), [][2]string{{"victim", "link-file"}, {"deep/er", "link-dir"}, {"deep/.gitignore", "link-ignore"}, {"src", "link-dir"},
		{"victim", "fifo"}, {"victim", "socket"}, {"victim", "device"}, {"deep", "fifo"}, {"deep/.gitignore", "fifo"}})
	walked := 0
	for begun := time.Now(); time.Since(begun) < 2*time.Second || (walked < 100 && time.Since(begun) < time.Minute); walked++ {
		_, _, err := w.collection().directory().Snapshot(t.Context(), w.before, w.path("index.race")) // a torn view is an error at worst
		if errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		for _, text := range []string{secret, "\x00"} { // outside, and of the device
			if found := grep(t, w.path("stage"), text); found != "" {
				t.Fatalf("%q was copied to %s", text, found)
			}
		}
	}
	if swaps := stop(); walked < 100 || swaps < 1000 {
		t.Errorf("only %d walks against %d swaps: that proves little", walked, swaps)
	}
}

// swapping exchanges pairs of names, there and back again, until the function
// that it returns is called, which tells how often.
func swapping(t *testing.T, dir string, pairs [][2]string) (stop func() int) {
	t.Helper()
	end, swapped := make(chan struct{}), make(chan int)
	go func() {
		swaps := 0
		for {
			select {
			case <-end:
				swapped <- swaps
				return
			default:
			}
			for _, pair := range pairs {
				a, b, tmp := filepath.Join(dir, pair[0]), filepath.Join(dir, pair[1]), filepath.Join(dir, "tmp")
				for range 2 {
					if err := errors.Join(os.Rename(a, tmp), os.Rename(b, a), os.Rename(tmp, b)); err != nil {
						t.Error(fmt.Errorf("swap: %w", err))
					}
					swaps++
				}
			}
		}
	}()
	stop = sync.OnceValue(func() int { close(end); return <-swapped })
	t.Cleanup(func() { stop() })
	return stop
}

// special makes what is neither a file nor a directory. Only root can make a
// device; for others a second FIFO takes its place.
func special(t *testing.T, dir string) {
	t.Helper()
	err := errors.Join(
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o600, 0))
	if unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) != nil { // endless zeros
		err = errors.Join(err, unix.Mkfifo(filepath.Join(dir, "device"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// grep returns a file below dir that contains text.
func grep(t *testing.T, dir, text string) (found string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if strings.Contains(string(data), text) {
			found = p
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
