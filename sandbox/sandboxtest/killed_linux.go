package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/overlay"
)

// killedBefore counts the calls of RunnerKilled.
var killedBefore atomic.Int64

// RunnerKilled kills, with SIGKILL, a process that runs a jail. If nothing
// survives that by itself, reaped is false; else what does has to be found
// and killed with sandbox.Leftovers. A workspace with layers serves another
// jail afterwards. The process is the test binary, which has to call ServeRunner in
// TestMain.
//
// The first call in a process kills a plain jail that runs; each further one
// takes another kind of jail, the fourth one with layers if b can show them, and
// as many after these are killed while they start, and so on.
func RunnerKilled(t *testing.T, b sandbox.Backend, reaped bool) {
	Require(t, b, sandbox.FeatureKill)
	possible := len(kinds)
	if enforced, err := Enforced(t.Context(), b); err != nil || !slices.Contains(enforced, sandbox.FeatureLayers) {
		possible-- // the last one has layers
	}
	n := int(killedBefore.Add(1)) - 1
	r := runner{b: b, kind: n % possible, dir: treeDir(t), mark: fmt.Sprintf("mark-%d-%x", os.Getpid(), rand.Uint64())}
	r.kill(t, n/possible%2 == 1, reaped)
	if kinds[r.kind].name == "overlay" {
		upper := filepath.Join(r.dir, "upper")
		t.Cleanup(func() {
			// The kernel's directories in it are closed even to their owner.
			if err := (overlay.View{Upper: upper, Work: upper + ".work"}).Remove(); err != nil {
				t.Error(err)
			}
		})
		r.mark += "-again"
		r.kill(t, false, reaped)
	}
}

type runner struct {
	b    sandbox.Backend
	kind int
	dir  string
	mark string
}

// kill starts a jail and kills its starter.
func (r runner) kill(t *testing.T, early, reaped bool) {
	t.Helper()
	began := time.Now()
	if early {
		r.killEarly(t)
	} else {
		r.killGrown(t)
	}
	if !reaped {
		// Two seconds are plenty, unless the machine is so busy that all takes long.
		most := max(2*time.Second, 10*time.Since(began))
		eventually(t, most, func() bool { return len(carrying(r.mark)) == 0 }, "the jail survives its starter")
	}
	r.reap(t)
	if found := carrying(r.mark); len(found) > 0 {
		t.Errorf("alive after the leftovers were killed: %q", found)
	}
	r.unmounted(t)
}

func (r runner) label() string { return "left." + r.mark }

// start returns the process, and what it says, after it has said that it is
// about to start the jail.
func (r runner) start(t *testing.T) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, runnerWord, r.mark, r.dir, strconv.Itoa(r.kind))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if got, err := lines.ReadString('\n'); got != "starting\n" {
		t.Errorf("the starter said %q, err %v", got, err)
	}
	return cmd, lines
}

func killNow(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

// killGrown kills the starter when the tree has grown.
func (r runner) killGrown(t *testing.T) {
	cmd, lines := r.start(t)
	defer killNow(t, cmd)
	if got, err := lines.ReadString('\n'); got != "ready\n" {
		t.Errorf("the starter of a jail of the kind %s said %q, err %v", kinds[r.kind].name, got, err)
	}
	eventually(t, 10*time.Second, func() bool { return len(carrying(r.mark+"-tree")) >= 4 }, "there is nothing to leave behind")
	if left, err := sandbox.Leftovers(t.Context(), r.label(), keepers(r.b)...); err != nil || len(left) > 0 {
		t.Errorf("with a living starter: leftovers %v, err %v", left, err)
	}
}

// killEarly kills the starter at a moment at which the jail is being made.
func (r runner) killEarly(t *testing.T) {
	cmd, _ := r.start(t)
	defer killNow(t, cmd)
	time.Sleep(rand.N(20 * time.Millisecond))
}

// reap kills what is left.
func (r runner) reap(t *testing.T) {
	t.Helper()
	left, err := sandbox.Leftovers(t.Context(), r.label(), keepers(r.b)...)
	if err != nil {
		t.Error(err)
	}
	for _, l := range left {
		if l.Label != r.label() {
			t.Errorf("got label %q", l.Label)
		}
		if err := l.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left, err := sandbox.Leftovers(t.Context(), r.label(), keepers(r.b)...); err != nil || len(left) > 0 {
		t.Errorf("after the leftovers were killed: leftovers %v, err %v", left, err)
	}
}

// unmounted looks for the jail's view of its workspace in all tables of mounts.
// A process that ends has no name any more while it still has its table.
func (r runner) unmounted(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(files, func(f string) bool {
			b, err := os.ReadFile(f)
			return err == nil && strings.Contains(string(b), r.dir)
		})
	}, "a table of mounts shows the jail's")
}

const runnerWord = "sandboxtest-runner"

// ServeRunner starts a jail on b and waits to be killed, where this process
// was started for that.
func ServeRunner(b sandbox.Backend, allow func(sandbox.Spec) sandbox.Spec) {
	if len(os.Args) != 5 || os.Args[1] != runnerWord {
		return
	}
	kind, err := strconv.Atoi(os.Args[4])
	if err != nil {
		os.Exit(1)
	}
	r := runner{b: b, mark: os.Args[2], dir: os.Args[3], kind: kind}
	spec := kindSpec(r.kind, r.dir, strings.ReplaceAll(trees["new sessions"], "MARK", r.mark+"-tree"), allow)
	spec.Label = r.label()
	fmt.Println("starting")
	p, err := sandbox.Start(context.Background(), b, spec, sandbox.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, err = p.Wait()
	fmt.Println("ended", err)
	os.Exit(1)
}
