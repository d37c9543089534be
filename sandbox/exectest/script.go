package exectest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Script runs a shell script in a directory, in which git has an identity and no settings of this
// host, and returns what it prints, without the last newline. The test ends where a command fails.
func Script(tb testing.TB, dir, script string) string {
	tb.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v: %s%s", script, err, out, failure.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}
