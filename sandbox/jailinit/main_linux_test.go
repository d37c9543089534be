package jailinit

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// again executes the test binary with a name and arguments, and control as
// descriptor 4, if there is one.
func again(t *testing.T, control *os.File, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Cmd{Path: self, Args: args, Env: []string{}}
	if control != nil {
		cmd.ExtraFiles = []*os.File{nil, control}
	}
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// The name of the first program, its mark and its socket together make a
// process one; a program that only shares some of them keeps its main.
func TestOnlyTheFirstProgramOfAJailIsTakenOver(t *testing.T) {
	const host, mark = "main of the host's program", Mark + "label_x-1-2-3"
	_, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	runner, control := os.NewFile(uintptr(pair[0]), "runner"), os.NewFile(uintptr(pair[1]), "control")
	defer runner.Close()
	defer control.Close()
	for name, c := range map[string]struct {
		args    []string
		control *os.File
		want    string
	}{
		"only the name":         {[]string{Path}, control, host},
		"another argument":      {[]string{Path, "serve"}, control, host},
		"one argument too many": {[]string{Path, mark, "serve"}, control, host},
		"no descriptor":         {[]string{Path, mark}, nil, "is not the socket"},
		"another descriptor":    {[]string{Path, mark}, pipe, "is not the socket"},
		"all of it":             {[]string{Path, mark}, control, ""},
	} {
		if got := again(t, c.control, c.args...); !strings.Contains(got, c.want) || (c.want == "" && got != "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	// There was no configuration, and that is said to the runner alone.
	b := make([]byte, 100)
	if n, err := unix.Read(pair[0], b); err != nil || !strings.HasPrefix(string(b[:n]), "error\x00set up") {
		t.Errorf("the runner was told %q, err %v", b[:n], err)
	}
}

// A program that runs with its owner's rights takes its arguments from another
// user.
func TestASetIDProgramIsNotTakenOver(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 || os.Getuid() != 0 {
		t.Skip("only root can give a program to somebody else, on a file system that allows it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	err = errors.Join(os.WriteFile(program, b, 0o755), os.Chown(program, 12345, 12345), os.Chmod(program, 0o755|os.ModeSetuid))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Cmd{Path: program, Args: []string{Path, Mark + "label_x-1-2-3"}, Env: []string{}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "main of the host") {
		t.Errorf("got %q, err %v", out, err)
	}
}
