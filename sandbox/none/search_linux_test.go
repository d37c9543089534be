package none_test

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/none"
)

// The search reads two files of each process of the host. A process that carries the
// name of the jail and is no part of it shows whether there was one.
func TestProcessesAreSearchedForOnlyWhereSomeMayBeLeft(t *testing.T) {
	if len(cgroup.Supported()) == 0 {
		t.Skip("no control groups can be made here: each jail is searched for")
	}
	for _, c := range []struct {
		name, end string
		searched  bool
	}{
		{"the agent ends", "exit 0", false},
		{"the agent leaves a daemon", "setsid sleep 1000 & exit 0", false},
		{"the agent kills its parent", "kill -9 $PPID; exec sleep 1000", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, written := io.Pipe()
			in, script := io.Pipe()
			spec := allow(sandbox.Spec{Args: []string{"sh", "-c", `echo "$PENSTOCK_JAIL"; read go; ` + c.end}, Workspace: t.TempDir()})
			p, err := sandbox.Start(t.Context(), &none.Backend{}, spec, sandbox.Streams{Stdin: in, Stdout: written})
			if err != nil {
				t.Fatal(err)
			}
			token, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			other := exec.Command("sleep", "1000")
			other.Env = []string{"PENSTOCK_JAIL=" + strings.TrimSpace(token)}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(script, "go\n"); err != nil {
				t.Error(err)
			}
			script.Close()
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
			_ = other.Process.Signal(syscall.SIGTERM) // it may have been killed
			_ = other.Wait()
			ended := other.ProcessState.Sys().(syscall.WaitStatus).Signal()
			if got := ended == syscall.SIGKILL; got != c.searched {
				t.Errorf("searched: %v, want %v; the other process ended by %v", got, c.searched, ended)
			}
		})
	}
}
