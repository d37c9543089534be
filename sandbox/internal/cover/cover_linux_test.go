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

// What is covered there is covered nowhere else.
func TestFiles(t *testing.T) {
	if !Possible() {
		t.Skip("only root, with its capabilities, can enter other namespaces")
	}
	dir := t.TempDir()
	secret, config := filepath.Join(dir, "secret"), filepath.Join(dir, "config")
	err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o644), os.Mkdir(config, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	look := "cat secret || echo hidden; echo x > secret; echo x > config/new || echo fixed"
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
	defer cmd.Wait() //nolint:errcheck // what it wrote tells
	defer in.Close()
	if _, err := io.ReadFull(out, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	namespace, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	if err := Files(namespace, []string{secret, dir + "/absent"}, []string{config, dir + "/missing"}); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if b, err := io.ReadAll(out); err != nil || strings.Join(strings.Fields(string(b)), " ") != "hidden fixed" {
		t.Errorf("there: %q, err %v", b, err)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("here: %q, err %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(config, "new"), nil, 0o644); err != nil {
		t.Error(err)
	}
	if err := Files(namespace, []string{config}, nil); err == nil || !strings.Contains(err.Error(), "cover "+config) {
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
	if err := Files(own, []string{file}, []string{filepath.Dir(file)}); err == nil {
		t.Error("got no error")
	}
	if err := os.WriteFile(file, []byte("y"), 0o644); err != nil {
		t.Error(err)
	}
}
