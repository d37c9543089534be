package oci_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/oci"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

// testImage is made by deploy/images/debian-root.sh.
const testImage = "penstock/test:1"

// Variables hand the first program's path, and an engine, to a test binary
// that this one executes.
const (
	initVariable   = "PENSTOCK_OCI_TEST_INIT"
	engineVariable = "PENSTOCK_OCI_TEST_ENGINE"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	sandboxtest.ServeRunner(&oci.Backend{Engine: os.Getenv(engineVariable), Init: os.Getenv(initVariable)}, withImage)
	dir, err := os.MkdirTemp("", "penstock-oci")
	if err == nil {
		err = build(filepath.Join(dir, "inside"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, os.RemoveAll(dir)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// build makes the first program: static, as images need it, which a test
// binary is not always.
func build(path string) error {
	cmd := exec.Command("go", "build", "-o", path, "./testdata/inside")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the first program: %w: %s", err, out)
	}
	return os.Setenv(initVariable, path)
}

// withImage lets the suite of all backends know nothing of images.
func withImage(spec sandbox.Spec) sandbox.Spec {
	if spec.Image == "" {
		spec.Image = testImage
	}
	return spec
}

// backend returns one for an engine that works here and has the test's image.
// Where it is missing the test is skipped, or fails where the engine is
// required by name.
func backend(tb testing.TB, engine string) *oci.Backend {
	tb.Helper()
	b := &oci.Backend{Engine: engine, Init: os.Getenv(initVariable)}
	report := tb.Skipf
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), engine) {
		report = tb.Fatalf
	}
	if _, err := b.Check(tb.Context()); err != nil {
		report("%s: %v", engine, err)
	}
	if out, err := exec.Command(engine, "image", "inspect", testImage).CombinedOutput(); err != nil {
		report("%s: %s; make it with deploy/images/debian-root.sh %s", engine, strings.TrimSpace(string(out)), testImage)
	}
	tb.Cleanup(func() {
		if left := kept(tb, b); len(left) > 0 {
			tb.Errorf("containers are left: %q", left)
		}
	})
	return b
}

// kept lists the tokens of this process's containers: tests of other packages have
// some at the same time.
func kept(tb testing.TB, b *oci.Backend) []string {
	tb.Helper()
	all, err := b.Kept(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	own := fmt.Sprintf("-%d-", os.Getpid()) // also in the labels of RunnerKilled
	return slices.DeleteFunc(all, func(token string) bool { return !strings.Contains(token, own) })
}
