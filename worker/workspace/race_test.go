package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Somebody swaps files and directories for links while the host collects.
// With isolation none an earlier agent's leftover process may do that.
func TestNothingOutsideIsEverRead(t *testing.T) {
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
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		swaps := 0
		for {
			select {
			case <-stop:
				stopped <- swaps
				return
			default:
			}
			for _, pair := range [][2]string{{"victim", "link-file"}, {"deep/er", "link-dir"}, {"deep/.gitignore", "link-ignore"}, {"src", "link-dir"}} {
				a, b, tmp := filepath.Join(w.Dir(), pair[0]), filepath.Join(w.Dir(), pair[1]), filepath.Join(w.Dir(), "tmp")
				for range 2 { // there and back again
					if err := errors.Join(os.Rename(a, tmp), os.Rename(b, a), os.Rename(tmp, b)); err != nil {
						t.Error(err)
					}
					swaps++
				}
			}
		}
	}()
	walked := 0
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); walked++ {
		st, err := newStage(filepath.Join(w.home, fmt.Sprint("stage", walked)))
		if err != nil {
			t.Fatal(err)
		}
		walk, err := newWalk(w.spaces.cfg.Limits, w.before, st)
		if err != nil {
			t.Fatal(err)
		}
		err = walk.run(t.Context(), w.Dir()) // a torn view is an error at worst
		if errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		st.close()
		if found := grep(t, st.dir, secret); found != "" {
			t.Fatalf("a file outside was copied to %s", found)
		}
		os.RemoveAll(st.dir)
	}
	close(stop)
	swaps := <-stopped
	if walked < 100 || swaps < 1000 {
		t.Errorf("only %d walks against %d swaps: that proves little", walked, swaps)
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
