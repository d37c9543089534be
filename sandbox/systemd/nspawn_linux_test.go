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

var result = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+)`)

// replay makes a test of each that ran in the container. Programs that the
// container lacks are no news.
func replay(t *testing.T, said string) {
	t.Helper()
	found := 0
	for line := range strings.Lines(said) {
		m := result.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		found++
		if m[2] == "FAIL" {
			t.Run(m[3], func(t *testing.T) { t.Error("it failed in the container") })
		}
	}
	if found < 200 || t.Failed() || !strings.HasSuffix(strings.TrimSpace(said), "PASS") {
		t.Errorf("%d results; all that was said:\n%s", found, said)
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
