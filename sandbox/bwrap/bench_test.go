package bwrap_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// program builds the program that people use: it is the first program of its
// jails, and of another size than this test.
func program(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "penstock")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", path, "../../cmd/penstock")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return path
}

// medians calls functions in turn, and returns what each takes mostly: other
// work on the machine moves the mean.
func medians(b *testing.B, functions ...func() error) []time.Duration {
	b.Helper()
	took := make([][]time.Duration, len(functions))
	for b.Loop() {
		for i, f := range functions {
			begin := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}
	var m []time.Duration
	for _, t := range took {
		slices.Sort(t)
		m = append(m, t[len(t)/2])
	}
	return m
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkStart compares, in the same run, a jail from start to exit with a
// bare bubblewrap that shows the whole host and limits nothing.
func BenchmarkStart(b *testing.B) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip(err)
	}
	backend := &bwrap.Backend{Init: program(b)}
	sandboxtest.Require(b, backend)
	bare := func() error {
		return exec.Command(path, "--unshare-all", "--ro-bind", "/", "/", "true").Run()
	}
	jail := func() error {
		_, err := sandbox.Run(b.Context(), backend, sandbox.Spec{Args: []string{"true"}}, sandbox.Streams{})
		return err
	}
	m := medians(b, bare, jail)
	b.ReportMetric(ms(m[0]), "bare-ms")
	b.ReportMetric(ms(m[1]), "jail-ms")
	b.ReportMetric(float64(m[1])/float64(m[0]), "ratio")
}

// BenchmarkOverlayStart compares, in the same run, a jail over a view of other
// directories with one over a plain directory, each from start to exit.
func BenchmarkOverlayStart(b *testing.B) {
	backend := &bwrap.Backend{Init: program(b)}
	sandboxtest.Require(b, backend, sandbox.FeatureLayers)
	root := b.TempDir()
	for _, dir := range []string{"plain", "lower/src", "upper"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	over := func(workspace string, lower ...string) func() error {
		spec := sandbox.Spec{Args: []string{"true"}, Workspace: filepath.Join(root, workspace), Lower: lower}
		return func() error {
			_, err := sandbox.Run(b.Context(), backend, spec, sandbox.Streams{})
			return err
		}
	}
	m := medians(b, over("plain"), over("upper", filepath.Join(root, "lower")))
	b.ReportMetric(ms(m[0]), "plain-ms")
	b.ReportMetric(ms(m[1]), "overlay-ms")
	b.ReportMetric(ms(m[1]-m[0]), "more-ms")
}

// BenchmarkStartAtOnce starts jails from as many goroutines as there are
// processors.
func BenchmarkStartAtOnce(b *testing.B) {
	backend := &bwrap.Backend{}
	sandboxtest.Require(b, backend)
	b.SetParallelism(max(1, 4/runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := sandbox.Run(b.Context(), backend, sandbox.Spec{Args: []string{"true"}}, sandbox.Streams{}); err != nil {
				b.Error(err)
			}
		}
	})
}
