package bwrap_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// layers makes a jail's view below root: a lower directory with d/f, and an
// empty workspace. The names hold what separates the kernel's options.
func layers(t *testing.T, root, script string) sandbox.Spec {
	for _, d := range []string{"low,er:1/d/e", `up\per`} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "low,er:1/d/f"), []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{
		Args: []string{"bash", "-c", script}, Workspace: filepath.Join(root, `up\per`), Lower: []string{filepath.Join(root, "low,er:1")},
	}
}

func TestOverlayTakesWhatIsWritten(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	root := t.TempDir()
	rename := "mv d h"
	if os.Geteuid() == 0 {
		exectest.Need(t, "python3")
		rename = `python3 -c 'import os; os.rename("d", "h")'` // mv would copy where it cannot rename
	}
	spec := layers(t, root, "cat d/f && echo new > d/f && echo x > g && rmdir d/e && "+rename)
	want := "old\n"
	for range 2 { // the second jail finds what the first has left
		var out bytes.Buffer
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{Stdout: &out, Stderr: &out})
		if err != nil || !exit.Success() || out.String() != want {
			t.Fatalf("got %v, err %v, %q; want %q", exit, err, out.String(), want)
		}
		spec.Args = []string{"sh", "-c", "ls; ls h; cat h/f g"}
		want = "g\nh\nf\nnew\nx\n"
	}
	if b, err := os.ReadFile(filepath.Join(root, "low,er:1/d/f")); err != nil || string(b) != "old\n" {
		t.Errorf("the lower layer has %q, err %v", b, err)
	}
	unseen(t, root)
	if _, err := os.Stat(spec.Workspace + ".work"); !os.IsNotExist(err) {
		t.Errorf("the work directory is still there: %v", err)
	}
}

func TestOverlayOfAUser(t *testing.T) { sandboxtest.Unprivileged(t, "TestOverlayTakesWhatIsWritten") }

// unseen fails if the host sees the view.
func unseen(t *testing.T, root string) {
	t.Helper()
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), root) {
		t.Errorf("the table of mounts shows the view; err %v", err)
	}
}

func TestOverlayReadOnly(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	spec := layers(t, t.TempDir(), "cat d/f && ! echo x > d/f")
	spec.WorkspaceReadOnly = true
	exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{})
	if err != nil || !exit.Success() {
		t.Errorf("got %v, err %v", exit, err)
	}
}

// A jail can see what it has written apart from what it shows, and not write there.
func TestUpperIsShownAlone(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b, sandbox.FeatureLayers)
	for _, readOnly := range []bool{false, true} {
		root := t.TempDir()
		spec := layers(t, root, "echo new > d/f")
		if exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{}); err != nil || !exit.Success() {
			t.Fatalf("got %v, err %v", exit, err)
		}
		spec.Upper, spec.WorkspaceReadOnly = "/penstock/upper", readOnly
		spec.Args = []string{"sh", "-c", "find /penstock/upper -type f; ! touch /penstock/upper/d/f 2>/dev/null; ! touch /penstock/upper/x 2>/dev/null"}
		var out bytes.Buffer
		exit, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{Stdout: &out, Stderr: &out})
		if want := "/penstock/upper/d/f\n"; err != nil || !exit.Success() || out.String() != want {
			t.Errorf("read-only %v: got %v, err %v, %q; want %q", readOnly, exit, err, out.String(), want)
		}
		unseen(t, root)
		if left, _ := filepath.Glob(spec.Workspace + ".*"); len(left) > 0 {
			t.Errorf("read-only %v: %q is left", readOnly, left)
		}
	}
}

func TestUpperOfAUser(t *testing.T) { sandboxtest.Unprivileged(t, "TestUpperIsShownAlone") }

// TestOverlayThatCannotBe: the jail does not start, and says why.
func TestOverlayThatCannotBe(t *testing.T) {
	b := &bwrap.Backend{}
	sandboxtest.Require(t, b)
	spec := layers(t, t.TempDir(), "true")
	spec.Lower = append(spec.Lower, "/does/not/exist")
	_, err := sandbox.Run(t.Context(), b, spec, sandbox.Streams{})
	if err == nil || !strings.Contains(err.Error(), "overlay") {
		t.Errorf("got %v, want the overlay named", err)
	}
}

func BenchmarkOverlay(b *testing.B) {
	backend := &bwrap.Backend{}
	sandboxtest.Require(b, backend)
	dir := b.TempDir()
	for _, d := range []string{"lower", "upper"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for name, lower := range map[string][]string{"without": nil, "with": {filepath.Join(dir, "lower")}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				spec := sandbox.Spec{Args: []string{"true"}, Workspace: filepath.Join(dir, "upper"), Lower: lower}
				if _, err := sandbox.Run(b.Context(), backend, spec, sandbox.Streams{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
