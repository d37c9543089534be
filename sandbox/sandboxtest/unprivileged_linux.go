package sandboxtest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// other is a user that no host has.
const other = 61234

// Unprivileged runs a test of this binary again, as a user without
// privileges, where this process is root. Elsewhere the test itself is that.
func Unprivileged(t *testing.T, name string) {
	if os.Geteuid() != 0 {
		t.Skip("this user is not root: the test itself runs without privileges")
	}
	dir, err := os.MkdirTemp("", "unprivileged-") //nolint:usetesting // directories of the test, and of the go command, are root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, home := filepath.Join(dir, "test"), filepath.Join(dir, "home")
	for _, step := range []func() error{
		func() error { return os.Chmod(dir, 0o755) },
		func() error { return copySelf(binary) },
		func() error { return os.Mkdir(home, 0o755) },
		func() error { return os.Chown(home, other, other) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run=^"+name+"$")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "XDG_CACHE_HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("=== RUN   "+name)) {
		t.Fatalf("as uid %d: %v\n%s", other, err, failures.FindAll(out, -1))
	}
	if why := regexp.MustCompile(`(?m)^--- SKIP: ` + name + ` .*\n((?:    .*\n)+)`).FindSubmatch(out); why != nil {
		t.Skipf("as uid %d: %s", other, strings.TrimSpace(string(why[1])))
	}
	passed := bytes.Count(out, []byte("--- PASS: "))
	skipped := regexp.MustCompile(`(?m)^.*does not enforce.*$`).FindAll(out, -1)
	t.Logf("as uid %d: %d passed; skipped: %s", other, passed, bytes.Join(skipped, []byte(";")))
}

// failures are the lines of a verbose test that say what failed, and why.
var failures = regexp.MustCompile(`(?m)^( *--- FAIL.*| {4,}\w+\.go:\d+: .*|panic: .*)$`)

func copySelf(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, from); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
