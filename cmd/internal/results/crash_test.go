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

const crashDir = "PENSTOCK_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := work(dir); err != nil {
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kills := 0
	for run := 0; ; run++ {
		if run > 200 {
			t.Fatal("the batch does not get on")
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err == nil && kills < 25 {
			time.Sleep(time.Duration(rand.IntN(12_000)) * time.Microsecond)
			_ = cmd.Process.Kill()
		}
		err = cmd.Wait()
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "killed") {
			t.Fatalf("run %d: %v: %s", run, err, stderr.String())
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
