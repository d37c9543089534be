package systemd_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

//go:embed testdata/run.sh
var containerRun []byte

// TestUnderItsOwnSystemd boots a container with systemd as its first process
// and makes the other tests there: as root, and as a user with a manager of his
// own. Where this machine was booted with systemd they run on it directly.
func TestUnderItsOwnSystemd(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was booted with systemd: the tests run on it")
	}
	out := t.TempDir()
	sandboxtest.Boot(t, out, containerRun)
	for _, who := range []string{"root", "tester"} {
		said, err := os.ReadFile(filepath.Join(out, who+".txt"))
		if err != nil {
			t.Error(err)
		}
		t.Run(who, func(t *testing.T) { replay(t, string(said)) })
	}
	if _, err := os.Stat(filepath.Join(out, "complete")); err != nil {
		log, _ := os.ReadFile(filepath.Join(out, "log"))
		t.Errorf("the tests in the container did not end: %v\n%s", err, log)
	}
}

var (
	result  = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)
	speaker = regexp.MustCompile(`^=== (?:RUN|PAUSE|CONT|NAME) +(\S+)`)
)

// replay makes a test of each that failed in the container, with what it said. Programs
// that the container lacks are no news.
func replay(t *testing.T, said string) {
	t.Helper()
	found, speaks := 0, ""
	saidBy := map[string]string{}
	var failed []string
	for line := range strings.Lines(said) {
		if m := speaker.FindStringSubmatch(line); m != nil {
			speaks = m[1]
		} else if m := result.FindStringSubmatch(line); m == nil {
			saidBy[speaks] += line
		} else if found++; m[1] == "FAIL" {
			failed = append(failed, m[2])
		}
	}
	for _, name := range failed {
		t.Run(name, func(t *testing.T) { t.Errorf("it failed in the container:\n%s", saidBy[name]) })
	}
	if end := strings.TrimSpace(said); found < 200 || len(failed) == 0 && !strings.HasSuffix(end, "PASS") {
		t.Errorf("%d results; the last of what was said:\n%s", found, end[max(0, len(end)-4096):])
	}
	for skipped, why := range skips(said) {
		t.Logf("not in the container: %s: %s", skipped, why)
	}
}

var skip = regexp.MustCompile(`(?m)^\s+(\S+\.go:\d+: .*)\n(?:=== .*\n)*\s*--- SKIP: (\S+)`)

func skips(said string) map[string]string {
	m := map[string]string{}
	for _, s := range skip.FindAllStringSubmatch(said, -1) {
		m[s[2]] = s[1]
	}
	return m
}
