package results

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
)

const (
	crashDir  = "PENSTOCK_TEST_CRASH_DIR"
	crashRedo = "PENSTOCK_TEST_CRASH_REDO"
	fullDir   = "PENSTOCK_TEST_FULL_DIR"
)

func TestMain(m *testing.M) {
	for name, run := range map[string]func(string) error{crashDir: work, fullDir: fillDisk} {
		dir := os.Getenv(name)
		if dir == "" {
			continue
		}
		if err := run(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const crashItems = 60

// work is a batch that is killed somewhere on its way: it adds what is
// missing, with four at a time and results longer than a page.
func work(dir string) error {
	d, err := Open(dir, manifest(crashItems))
	if err != nil {
		return err
	}
	fmt.Println("open")
	if os.Getenv(crashRedo) != "" {
		if _, err := d.Redo("all"); err != nil {
			return err
		}
	}
	missing := make(chan string)
	errs := make(chan error, 4)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for item := range missing {
				var i int
				if _, err := fmt.Sscan(item, &i); err != nil {
					errs <- err
					return
				}
				r := result(i - 1)
				r.Message = strings.Repeat("m", 9000)
				if err := d.Add(context.Background(), r, strings.NewReader(crashPatch(i)), events(50)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	go func() { wg.Wait(); close(errs) }()
	for _, item := range d.Missing() {
		select {
		case missing <- item:
		case err := <-errs:
			return err
		}
	}
	close(missing)
	for err := range errs {
		return err
	}
	if err := d.Finish(Completed, ""); err != nil {
		return err
	}
	return d.Close()
}

func crashPatch(i int) string {
	return fmt.Sprintf("begin %d\n%send %d\n", i, strings.Repeat("+x\n", 5000), i)
}

// TestKilled kills a batch at random moments until it completes. After each
// death every line counts, and has its patch and its log, whole.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	kills := 0
	for run := 0; ; run++ {
		if run > 200 {
			t.Fatal("the batch does not get on")
		}
		if !killed(t, dir, kills < 25) {
			break
		}
		kills++
		checkWhole(t, dir)
	}
	if kills < 3 {
		t.Errorf("only %d kills: the test shows nothing", kills)
	}
	if got := checkWhole(t, dir); got != crashItems {
		t.Errorf("%d results in the end, want %d", got, crashItems)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Logf("%d kills", kills)
}

// TestKilledRedo kills a batch that is done again each time. What counts is
// whole, and what does not count any more was set aside before.
func TestKilledRedo(t *testing.T) {
	dir := t.TempDir()
	if killed(t, dir, false) {
		t.Fatal("the first run did not complete")
	}
	kills := 0
	for range 12 {
		if killed(t, dir, true, crashRedo+"=1") {
			kills++
		}
		checkWhole(t, dir)
		files, err := filepath.Glob(filepath.Join(dir, "redone", "*", "results.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		kept := ""
		for _, file := range append(files, filepath.Join(dir, "results.jsonl")) {
			kept += content(t, file)
		}
		for i := range crashItems {
			if !strings.Contains(kept, fmt.Sprintf(`{"id":"%d",`, i+1)) {
				t.Fatalf("the result of item %d is neither there nor set aside", i+1)
			}
		}
	}
	if kills == 0 {
		t.Error("nothing was killed: the test shows nothing")
	}
}

// killed runs the batch in a process of its own, and reports whether it was
// killed before its end.
func killed(t *testing.T, dir string, kill bool, env ...string) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), crashDir+"="+dir), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err == nil && kill {
		time.Sleep(time.Duration(rand.IntN(12_000)) * time.Microsecond)
		_ = cmd.Process.Kill()
	}
	err = cmd.Wait()
	if err != nil && !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return err != nil
}

// checkWhole reads the directory as another program would.
func checkWhole(t testing.TB, dir string) int {
	t.Helper()
	d, err := Load(dir)
	if err != nil {
		t.Fatalf("Load after a kill: %v", err)
	}
	defer d.Close()
	n := 0
	for r, err := range d.Results() {
		if err != nil {
			t.Fatal(err)
		}
		n++
		var i int
		if _, err := fmt.Sscan(r.ID, &i); err != nil || len(r.Message) != 9000 {
			t.Fatalf("result %s is not whole: %v", r.ID, err)
		}
		if got := content(t, filepath.Join(dir, patchName(r.ID))); got != crashPatch(i) {
			t.Fatalf("item %s counts, its patch has %d bytes", r.ID, len(got))
		}
		log := strings.Split(strings.TrimSuffix(content(t, filepath.Join(dir, logName(r.ID))), "\n"), "\n")
		var last jobs.Event
		if err := json.Unmarshal([]byte(log[len(log)-1]), &last); err != nil || len(log) != 50 || last.Seq != 50 {
			t.Fatalf("item %s counts, its log has %d lines: %v", r.ID, len(log), err)
		}
	}
	return n
}
