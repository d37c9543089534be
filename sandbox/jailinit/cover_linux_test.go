package jailinit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The agent is executed when the runner has said that everything is covered, and
// never otherwise.
func TestTheAgentWaitsForTheCover(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer string // "" is the end of the socket
		want   string
	}{
		"covered":       {CoveredWord, "agent"},
		"no runner":     {"", ""},
		"another word":  {"0", ""},
		"more than it":  {CoveredWord + "x", ""},
		"an early word": {"cover", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Args: []string{"/bin/echo", "agent"}, Dir: "/", Covered: true}
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, config.Encode(), 0o600); err != nil {
				t.Fatal(err)
			}
			data, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			runner, control := os.NewFile(uintptr(pair[0]), "runner"), os.NewFile(uintptr(pair[1]), "control")
			defer runner.Close()
			var out strings.Builder
			cmd := exec.Cmd{
				Path: self, Args: []string{Path, Mark + "label_x-1-2-3"}, Env: []string{},
				ExtraFiles: []*os.File{nil, control, data}, Stdout: &out, Stderr: &out,
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			control.Close()
			said := make([]byte, 100)
			if n, err := unix.Read(pair[0], said); err != nil || string(said[:n]) != "ready" {
				t.Errorf("it began with %q, err %v", said[:n], err)
			}
			if c.answer == "" {
				runner.Close()
			} else if _, err := unix.Write(pair[0], []byte(c.answer)); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // what it wrote tells
			if got := strings.TrimSpace(out.String()); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
