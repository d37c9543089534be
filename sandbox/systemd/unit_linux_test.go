package systemd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/sandbox/systemd"
)

func manager() string {
	if os.Geteuid() == 0 {
		return "--system"
	}
	return "--user"
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("systemctl", append([]string{manager()}, args...)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", os.Geteuid()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("systemctl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// Directories of the host may be called anything.
func TestOddPaths(t *testing.T) {
	b := &systemd.Backend{}
	sandboxtest.Require(t, b)
	for _, name := range []string{"a b", "a:b:rbind", `back\slash\n`, "per%h%%cent", "$HOME ${x}", "-x", "é;#"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		exit, err := sandbox.Run(t.Context(), b, sandbox.Spec{
			Args: []string{"sh", "-c", "echo x > f && ls /opt/same"}, Workspace: dir, Mounts: []sandbox.Mount{{Source: dir, Target: "/opt/same"}},
		}, sandbox.Streams{Stdout: &out, Stderr: &out})
		if got, errRead := os.ReadFile(filepath.Join(dir, "f")); err != nil || !exit.Success() || string(got) != "x\n" || out.String() != "f\n" {
			t.Errorf("%q: got %v, err %v, %q, file %q, err %v", name, exit, err, out.String(), got, errRead)
		}
	}
}

// What the manager and the list of processes show is neither the environment
// nor the arguments of the agent.
func TestNothingSecretIsSeen(t *testing.T) {
	b := &systemd.Backend{}
	sandboxtest.Require(t, b)
	const secret = "t0ken-5a17"
	p, err := sandbox.Start(t.Context(), b, sandbox.Spec{
		Args: []string{"sleep", "1000"}, Env: []string{"PATH=/usr/bin:/bin", "TOKEN=" + secret},
		Files: []sandbox.File{{Path: "/etc/" + secret, Data: []byte(secret)}}, Label: "visible.1",
	}, sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	shown := systemctl(t, "show", "penstock-visible.1_*.service") + systemctl(t, "cat", "penstock-visible.1_*.service")
	if !strings.Contains(shown, "/jail/init") {
		t.Errorf("the unit was not found: %s", shown)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		c, _ := os.ReadFile(f)
		if strings.Contains(string(c), "penstock-jail=visible.1_") {
			seen++
			shown += string(c)
			e, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "environ"))
			shown += string(e)
		}
	}
	if seen < 3 { // the client, and two of jailinit
		t.Errorf("%d processes of the jail were found", seen)
	}
	if strings.Contains(shown, secret) {
		t.Errorf("the secret is in %s", shown)
	}
}

// A jail that is stopped before its program runs leaves nothing, whatever the
// moment.
func TestStopDuringTheStart(t *testing.T) {
	b := &systemd.Backend{}
	sandboxtest.Require(t, b)
	prefix := fmt.Sprintf("start.%d.", os.Getpid())
	for n := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*4*time.Millisecond)
		p, err := sandbox.Start(ctx, b, sandbox.Spec{Args: []string{"sleep", "1000"}, Label: fmt.Sprint(prefix, n)}, sandbox.Streams{})
		if err == nil {
			_, err = p.Wait()
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d: got %v", n, err)
		}
	}
	// The manager forgets a unit a moment after its last process.
	deadline := time.Now().Add(slowtest.Limit(10 * time.Second))
	for {
		kept, err := b.Kept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kept = slices.DeleteFunc(kept, func(token string) bool { return !strings.HasPrefix(token, prefix) })
		if len(kept) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the manager still has %q", kept)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A unit whose starter is dead is found, and ended with all that is in it.
func TestUnitsOfTheDeadAreEnded(t *testing.T) {
	b := &systemd.Backend{}
	sandboxtest.Require(t, b)
	var ns string
	p, err := sandbox.Start(t.Context(), b, sandbox.Spec{Args: []string{"sleep", "1000"}, Label: "alive.1"}, sandbox.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	kept, err := b.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range kept {
		if rest, ok := strings.CutPrefix(token, "alive.1_"); ok {
			ns, _, _ = strings.Cut(rest, "-")
		}
	}
	if ns == "" {
		t.Fatalf("the running jail is not among %q", kept)
	}
	// A number that no process has, and a start that none had.
	unit := fmt.Sprintf("penstock-dead.1_%s-%d-1-1.service", ns, 1<<22+1)
	cmd := exec.Command("systemd-run", manager(), "--quiet", "--collect", "--unit="+unit, "sleep", "987654")
	cmd.Env = append(os.Environ(), fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", os.Geteuid()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := sandbox.Leftovers(t.Context(), "alive.", b); err != nil || len(left) > 0 {
		t.Errorf("with a living starter: got %v, err %v", left, err)
	}
	left, err := sandbox.Leftovers(t.Context(), "dead.", b)
	if err != nil || len(left) != 1 {
		t.Fatalf("got %v, err %v, want one", left, err)
	}
	if err := left[0].Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := sandbox.Leftovers(t.Context(), "dead.", b); err != nil || len(left) > 0 {
		t.Errorf("afterwards: got %v, err %v", left, err)
	}
}
