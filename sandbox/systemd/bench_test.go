package systemd_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/systemd"
)

// BenchmarkStart compares, in the same run, a jail from start to exit with a
// bare transient service.
func BenchmarkStart(b *testing.B) {
	backend := &systemd.Backend{}
	sandboxtest.Require(b, backend)
	manager := "--system"
	if os.Geteuid() != 0 {
		manager = "--user"
	}
	bare := func() error {
		return exec.Command("systemd-run", manager, "--quiet", "--pipe", "--wait", "--collect", "true").Run()
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
