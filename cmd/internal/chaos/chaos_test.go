package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/cmd/internal/chaos"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// programs is where the tests' programs are: linking one takes as long as a test. It
// is empty until a test needs one, for a test also runs this binary and kills it.
var programs string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(programs)
		os.Exit(code)
	}))
}

var programsDir = sync.OnceValues(func() (string, error) {
	var err error
	programs, err = os.MkdirTemp("", "penstock-chaos")
	return programs, err
})

// plain is built as for a user, unfenced without what fences workers.
var (
	plain    = sync.OnceValues(func() (string, error) { return build("plain") })
	unfenced = sync.OnceValues(func() (string, error) { return build("unfenced", "-tags", "penstock_unfenced") })
)

func build(name string, args ...string) (program string, err error) {
	dir, err := programsDir()
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, name)
	if out, err := exec.Command("go", append(append([]string{"build"}, args...), "-o", program, "../../penstock")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return program, nil
}

// breakPool runs the program as a user does.
func breakPool(t *testing.T, made func() (string, error), args ...string) (report chaos.Report, code int) {
	t.Helper()
	sandboxtest.Require(t, &bwrap.Backend{})
	program, err := made()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), program, append([]string{"chaos", "-o", "json", "--dir", filepath.Join(t.TempDir(), "pool")}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s%s", out, said.String())
		}
	})
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v", err)
	}
	return report, code
}

func TestAPoolLosesNothing(t *testing.T) {
	t.Parallel()
	kinds := []string{"kill worker", "stop worker", "cut connection", "mute connection", "kill broker"}
	report, code := breakPool(t, plain, "--jobs", "20", "--faults", "50", "--kinds", strings.Join(kinds, ","))
	faults := 0
	for _, n := range report.Faults {
		faults += n
	}
	if code != 0 || report.Results != 20 || faults != 50 || len(report.Faults) != len(kinds) {
		t.Errorf("exit code %d, %d results after %d faults of %d kinds; want 0, 20, 50 and %d",
			code, report.Results, faults, len(report.Faults), len(kinds))
	}
	if report.Attempts < 20 || report.Events < 20*10 {
		t.Errorf("%d attempts and %d events for 20 jobs", report.Attempts, report.Events)
	}
}

// The long form is in docs/explanation/chaos.md: it takes servers seconds to begin, and to
// choose another leader.
func TestAClusterLosesNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kinds  string
		faults int
	}{{"kill broker", 2}, {"cut servers,isolate server", 3}} {
		t.Run(test.kinds, func(t *testing.T) {
			t.Parallel()
			report, code := breakPool(t, plain, "--cluster", "3", "--workers", "2", "--jobs", "5", "--faults", fmt.Sprint(test.faults), "--every", "3s", "--kinds", test.kinds)
			faults := 0
			for _, n := range report.Faults {
				faults += n
			}
			if code != 0 || report.Results != 5 || faults != test.faults || report.Cluster != 3 {
				t.Errorf("exit code %d, %d results, %v in a cluster of %d; want 0, 5, %d faults and 3", code, report.Results, report.Faults, report.Cluster, test.faults)
			}
		})
	}
}

func TestAPoolOutlivesAFullDiskAndMovedClocks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 && runtime.GOARCH != "amd64" {
		t.Skip("a full disk needs root, a moved clock an x86-64")
	}
	report, code := breakPool(t, plain, "--jobs", "10", "--faults", "8", "--kinds", "full disk,clock jump")
	if code != 0 || report.Results != 10 || len(report.Faults)+len(report.Skipped) != 2 {
		t.Errorf("exit code %d, %d results after %v, without %v; want 0, 10 and both", code, report.Results, report.Faults, report.Skipped)
	}
}

// Without what keeps two workers from acting for one job, workers that were
// stopped and go on write over what others have done since.
func TestAPoolWithoutItsFenceIsFoundOut(t *testing.T) {
	t.Parallel()
	report, code := breakPool(t, unfenced, "--jobs", "20", "--faults", "15", "--kinds", "stop worker")
	if code != 1 || len(report.Violations) == 0 || report.Stale+report.Duplicates+report.EventsDouble == 0 {
		t.Errorf("exit code %d, %d violations, %d stale events, %d duplicates, %d events twice; want 1 and some",
			code, len(report.Violations), report.Stale, report.Duplicates, report.EventsDouble)
	}
}
