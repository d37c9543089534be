package bwrap_test

import (
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// BenchmarkStart compares, in the same run, a jail from start to exit with a
// bare bubblewrap that shows the whole host and limits nothing.
func BenchmarkStart(b *testing.B) {
	backend := &bwrap.Backend{}
	sandboxtest.Require(b, backend)
	path, err := exec.LookPath("bwrap")
	if err != nil {
		b.Fatal(err)
	}
	bare := func() error {
		return exec.Command(path, "--unshare-all", "--ro-bind", "/", "/", "true").Run()
	}
	ours := func() error {
		_, err := sandbox.Run(b.Context(), backend, sandbox.Spec{Args: []string{"true"}}, sandbox.Streams{})
		return err
	}
	var took [2][]time.Duration
	for b.Loop() {
		for i, f := range []func() error{bare, ours} {
			begin := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}
	// The median: other work on the machine moves the mean of either.
	var median [2]time.Duration
	for i := range took {
		slices.Sort(took[i])
		median[i] = took[i][len(took[i])/2]
	}
	b.ReportMetric(float64(median[0].Microseconds())/1000, "bare-ms")
	b.ReportMetric(float64(median[1].Microseconds())/1000, "jail-ms")
	b.ReportMetric(float64(median[1])/float64(median[0]), "ratio")
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
