// Package browsertest finds what tests with a real browser need.
package browsertest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Programs returns node and Chromium, or skips the test; so it does without packages of
// npm that node is to find. Where PENSTOCK_TEST_REQUIRE names what is missing, the test
// fails instead. Packages are pairs: the name there, and that of npm.
func Programs(tb testing.TB, packages ...[2]string) (node, chromium string) {
	tb.Helper()
	for _, p := range packages {
		if !installed(p[1]) {
			missing(tb, p[0], "no "+p[1]+": npm install "+p[1]+", and set NODE_PATH to its node_modules")
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		missing(tb, "node", "no node in PATH")
	}
	if chromium, err = exec.LookPath("chromium"); err != nil {
		missing(tb, "chromium", "no chromium in PATH")
	}
	return node, chromium
}

// Task is what a script is told, in JSON: what the test has to say, which Chromium to start,
// and for how many milliseconds to wait for each thing that a page is to show (patience).
func Task(chromium string, task map[string]any) ([]byte, error) {
	task["chromium"] = chromium
	task["patience"] = slowtest.Limit(time.Minute).Milliseconds()
	return json.Marshal(task)
}

// Browse has node run a script that looks at pages, with its [Task] on its standard input. What it prints is wrong with them. It has time for a machine under load, and ends
// its browser when that is over.
func Browse(tb testing.TB, node, script string, task []byte) {
	tb.Helper()
	ctx, done := context.WithTimeout(tb.Context(), slowtest.Limit(4*time.Minute))
	defer done()
	cmd := exec.CommandContext(ctx, node, script)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin = bytes.NewReader(task)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		tb.Errorf("%v\n%s", err, out)
	}
}

// Packages that tests use.
var (
	Puppeteer = [2]string{"puppeteer", "puppeteer-core"}
	Axe       = [2]string{"axe", "axe-core"}
)

func installed(name string) bool {
	return slices.ContainsFunc(filepath.SplitList(os.Getenv("NODE_PATH")), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

func missing(tb testing.TB, name, why string) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), name) {
		tb.Fatal(why)
	}
	tb.Skip(why)
}
