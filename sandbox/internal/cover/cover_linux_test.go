package cover

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// elsewhere starts a shell in a mount namespace of its own. What it is to look at
// runs when the second result is called, which returns what was written.
func elsewhere(t *testing.T, dir, look string) (namespace *os.File, told func() string) {
	t.Helper()
	if !Possible() {
		t.Skip("only root, with its capabilities, can enter other namespaces")
	}
	cmd := exec.Command("sh", "-c", "echo begun; read go; { "+look+"; } 2>/dev/null")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() }) // what it wrote tells
	if _, err := io.ReadFull(out, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	namespace, err = os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	return namespace, func() string {
		in.Close()
		b, err := io.ReadAll(out)
		if err != nil {
			t.Error(err)
		}
		return strings.Join(strings.Fields(string(b)), " ")
	}
}

// What is covered there is covered nowhere else.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	namespace, told := elsewhere(t, dir, "cat secret || echo hidden; echo x > secret; echo x > config/new || echo fixed")
	secret, config := filepath.Join(dir, "secret"), filepath.Join(dir, "config")
	err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o644), os.Mkdir(config, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	c := Cover{Hidden: []string{secret, dir + "/absent"}, ReadOnly: []string{config, dir + "/missing"}}
	if err := c.Begin().Apply(namespace); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "hidden fixed" {
		t.Errorf("there: %q", got)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("here: %q, err %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(config, "new"), nil, 0o644); err != nil {
		t.Error(err)
	}
	c = Cover{Hidden: []string{config}}
	if err := c.Begin().Apply(namespace); err == nil || !strings.Contains(err.Error(), "cover "+config) {
		t.Errorf("a directory that should be a device: %v", err)
	}
}

// Nothing of the host is ever covered.
func TestOwnNamespace(t *testing.T) {
	own, err := os.Open(ownNamespace)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := Cover{Hidden: []string{file}, ReadOnly: []string{filepath.Dir(file)}, Directory: Directory{Path: filepath.Dir(file)}}
	if err := c.Begin().Apply(own); err == nil {
		t.Error("got no error")
	}
	if err := os.WriteFile(file, []byte("y"), 0o644); err != nil {
		t.Error(err)
	}
}
