package scratch_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/scratch"
)

// holds is set in a process that makes a directory and waits.
const holds = "PENSTOCK_TEST_SCRATCH"

func TestMain(m *testing.M) {
	if os.Getenv(holds) == "" {
		os.Exit(m.Run())
	}
	dir, done, err := scratch.Dir("test")
	if err != nil {
		panic(err)
	}
	fmt.Println(dir)
	time.Sleep(time.Hour)
	_ = done() // and until then the lock is held
}

// hold has another process make a directory, until end is called.
func hold(t *testing.T) (dir string, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holds+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[:len(line)-1], end
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// What a killed program leaves is removed by the next one; what a live one has, and what
// people have under such a name, stays.
func TestAKilledProgramLeavesNothingForLong(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed, end := hold(t)
	alive, _ := hold(t)
	if err := os.WriteFile(filepath.Join(killed, "patch"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	persons := filepath.Join(os.TempDir(), "penstock-test-of-a-person")
	for _, name := range []string{"lock", "mine"} {
		if err := os.MkdirAll(persons, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(persons, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(os.TempDir(), "penstock-test-empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(persons, filepath.Join(os.TempDir(), "penstock-test-link")); err != nil {
		t.Fatal(err)
	}
	kept := []string{alive, filepath.Join(persons, "mine"), empty}
	if os.Geteuid() == 0 {
		others := filepath.Join(os.TempDir(), "penstock-test-of-another-user")
		if err := errors.Join(os.Mkdir(others, 0o700), os.WriteFile(filepath.Join(others, "lock"), nil, 0o600), os.Chown(others, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, others)
	}
	end()
	dir, done, err := scratch.Dir("test")
	if err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Dir(killed)) {
		t.Error("what the killed program left is there")
	}
	for _, path := range append(kept, dir) {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := done(); err != nil || exists(filepath.Dir(dir)) {
		t.Errorf("done leaves it: %v", err)
	}
}

// Programs that begin and end at once take nothing from each other.
func TestManyAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var g sync.WaitGroup
	for n := range 8 {
		g.Go(func() {
			for range 50 {
				dir, done, err := scratch.Dir("test")
				if err != nil {
					t.Errorf("%d: %v", n, err)
					return
				}
				if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
					t.Errorf("%d: %v", n, err)
				}
				if err := done(); err != nil {
					t.Errorf("%d: %v", n, err)
				}
			}
		})
	}
	g.Wait()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
