package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

// trees are shell scripts that try to leave something behind. MARK is
// replaced by a word that finds their processes on the host; ./s sleeps under
// that name.
var trees = map[string]string{
	"forks":            `for i in 1 2 3 4; do ./s MARK & done; echo ready; wait`,
	"double forks":     `(./s MARK & ) ; (sh -c './s MARK & echo x >/dev/null; ./s MARK' & ); echo ready; ./s MARK`,
	"new sessions":     `setsid ./s MARK & setsid sh -c 'setsid ./s MARK & ./s MARK' & echo ready; wait`,
	"ignores TERM":     `trap "" TERM HUP INT; ./s MARK & echo ready; while :; do sleep 1; done`,
	"closes streams":   `setsid sh -c 'exec 0<&- 1>&- 2>&-; ./s MARK' & echo ready; wait`,
	"forks for ever":   `trap "" TERM; ./s MARK & echo ready; while :; do ./s MARK & sleep 0.01; done`,
	"ends by itself":   `setsid ./s MARK & sleep 0.1; echo ready; exit 0`,
	"stops itself":     `./s MARK & echo ready; kill -STOP $$`,
	"kills its parent": `setsid ./s MARK & sleep 0.1; echo ready; kill -9 $PPID; wait`,
	"kills its group":  `trap "" TERM; setsid ./s MARK & sleep 0.1; kill -TERM 0; echo ready; wait`,
}

const sleeper = "#!/bin/bash\nexec -a \"$1\" sleep 1234567\n"

// Kill starts trees of processes and ends them in every way there is. What
// configures the Spec for the backend is allow, which may be nil.
func Kill(t *testing.T, b sandbox.Backend, rounds int, allow func(sandbox.Spec) sandbox.Spec) {
	Require(t, b, sandbox.FeatureKill)
	if allow == nil {
		allow = func(s sandbox.Spec) sandbox.Spec { return s }
	}
	for name, script := range trees {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			for round := range rounds {
				mark := fmt.Sprintf("mark-%d-%x", os.Getpid(), rand.Uint64())
				tree{b, allow, script, mark}.endOnce(t, round)
			}
		})
	}
}

type tree struct {
	backend sandbox.Backend
	allow   func(sandbox.Spec) sandbox.Spec
	script  string
	mark    string
}

// endOnce starts the tree and ends it in one of three ways.
func (tr tree) endOnce(t *testing.T, round int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, out := tr.start(ctx, t)
	defer p.Close(context.Background())
	if tr.script != trees["ends by itself"] && tr.script != trees["kills its parent"] {
		eventually(t, 2*time.Second, func() bool { return len(carrying(tr.mark)) >= 2 }, "the tree does not grow")
	}
	begin := time.Now()
	switch round % 3 {
	case 0:
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	case 1:
		cancel()
	case 2:
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	_, _ = p.Wait()
	if took := time.Since(begin); took > treeGrace+time.Second {
		t.Errorf("the end took %v with a grace of %v", took, treeGrace)
	}
	if left := carrying(tr.mark); len(left) > 0 {
		t.Errorf("alive after the end: %q", left)
	}
	out.Close()
}

const treeGrace = 100 * time.Millisecond

// start returns when the script has said that it is ready.
func (tr tree) start(ctx context.Context, t *testing.T) (*sandbox.Process, io.Closer) {
	t.Helper()
	r, w := io.Pipe()
	spec := tr.allow(sandbox.Spec{
		Args: []string{"bash", "-c", strings.ReplaceAll(tr.script, "MARK", tr.mark)}, Workspace: treeDir(t), Grace: treeGrace,
	})
	p, err := sandbox.Start(ctx, tr.backend, spec, sandbox.Streams{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	if got, err := lines.ReadString('\n'); got != "ready\n" {
		p.Close(context.Background())
		t.Fatalf("the script said %q, err %v", got, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends when r is closed
	return p, r
}

func treeDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s"), []byte(sleeper), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// carrying lists the arguments of living processes that hold a mark.
func carrying(mark string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var found []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), mark) {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// RunnerKilled kills, with SIGKILL, a process that runs a jail. If nothing
// survives that by itself, reaped is false; else what does has to be found
// and killed with sandbox.Leftovers. The process is the test binary, which
// has to call ServeRunner in TestMain.
func RunnerKilled(t *testing.T, b sandbox.Backend, reaped bool) {
	Require(t, b, sandbox.FeatureKill)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("mark-%d-%x", os.Getpid(), rand.Uint64())
	cmd := exec.Command(self, runnerWord, mark, treeDir(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(out).ReadString('\n'); got != "ready\n" {
		t.Errorf("the starter said %q, err %v", got, err)
	}
	eventually(t, 2*time.Second, func() bool { return len(carrying(mark+"-tree")) >= 4 }, "there is nothing to leave behind")
	if left, err := sandbox.Leftovers("left."); err != nil || len(left) > 0 {
		t.Errorf("with a living starter: leftovers %v, err %v", left, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !reaped {
		eventually(t, 2*time.Second, func() bool { return len(carrying(mark+"-tree")) == 0 }, "the jail survives its starter")
	}
	left, err := sandbox.Leftovers("left.")
	if err != nil {
		t.Error(err)
	}
	for _, l := range left {
		if l.Label != "left.1" {
			t.Errorf("got label %q", l.Label)
		}
		if err := l.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if found := carrying(mark + "-tree"); len(found) > 0 {
		t.Errorf("alive after the leftovers were killed: %q", found)
	}
	if left, err := sandbox.Leftovers("left."); err != nil || len(left) > 0 {
		t.Errorf("after the leftovers were killed: leftovers %v, err %v", left, err)
	}
}

func eventually(t *testing.T, d time.Duration, done func() bool, otherwise string) {
	t.Helper()
	for deadline := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
		if time.Now().After(deadline) {
			t.Error(otherwise)
			return
		}
	}
}

const runnerWord = "sandboxtest-runner"

// ServeRunner starts a jail on b and waits to be killed, where this process
// was started for that.
func ServeRunner(b sandbox.Backend, allow func(sandbox.Spec) sandbox.Spec) {
	if len(os.Args) != 4 || os.Args[1] != runnerWord {
		return
	}
	spec := sandbox.Spec{
		Label: "left.1", Workspace: os.Args[3],
		Args: []string{"bash", "-c", strings.ReplaceAll(trees["new sessions"], "MARK", os.Args[2]+"-tree")},
	}
	if allow != nil {
		spec = allow(spec)
	}
	p, err := sandbox.Start(context.Background(), b, spec, sandbox.Streams{Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, err = p.Wait()
	fmt.Println("ended", err)
	os.Exit(1)
}
