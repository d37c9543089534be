package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// inGroup starts a script in a group of its own, and ends it with the test.
func inGroup(t *testing.T, l Limits, script string) (*Group, *exec.Cmd) {
	t.Helper()
	g, err := New(fmt.Sprintf("test~%d-%s-%d", os.Getpid(), filepath.Base(t.Name()), time.Now().UnixNano()), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill()
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if clean, err := g.Start(cmd); err != nil || !clean {
		t.Fatal(clean, err)
	}
	return g, cmd
}

func requireLimit(t *testing.T, feature string) {
	t.Helper()
	if !slices.Contains(Supported(), feature) {
		t.Skipf("no control group can limit %s here", feature)
	}
}

// What needs too much memory is killed, alone: who started it goes on.
func TestMemoryIsLimited(t *testing.T) {
	requireLimit(t, Memory)
	// While what was killed still has its memory, the kernel may choose once more.
	g, cmd := inGroup(t, Limits{Memory: 32 << 20},
		"(echo 1000 >/proc/self/oom_score_adj; head -c 60000000 /dev/zero | tail -c 59000000 >/dev/null); test $? = 137 && exit 7")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the parent ended with %v, want status 7", err)
	}
	g.Kill()
	if got := g.Reached(); !slices.Contains(got, Memory) {
		t.Errorf("reached %q", got)
	}
}

func TestProcessesAreLimited(t *testing.T) {
	requireLimit(t, PIDs)
	g, cmd := inGroup(t, Limits{PIDs: 10}, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 100 & done")
	_ = cmd.Wait()
	g.Kill()
	if got := g.Reached(); !slices.Contains(got, PIDs) {
		t.Errorf("reached %q", got)
	}
}

// busy is a loop for which no program has to be started.
const busy = "while :; do :; done"

// used is the time that a process had so far, in clock ticks.
func used(t *testing.T, pid int) (ticks int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b)[strings.LastIndex(string(b), ")")+1:])
	var user, system int
	if _, err := fmt.Sscan(f[11]+" "+f[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return user + system
}

// shares starts a busy loop in a group for each of limits, all on one
// processor, and returns what they had when it was enough, and how long that
// took. At last it returns what they have then.
func shares(t *testing.T, enough func(ticks []int) bool, limits ...Limits) (ticks []int, took time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, l := range limits {
		_, cmd := inGroup(t, l, busy)
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
	}
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	// The first one has the processor for itself until the last one is busy, too.
	head := make([]int, len(pids))
	if !slowtest.Eventually(20*time.Second, time.Millisecond, func() bool { return used(t, pids[len(pids)-1]) > 0 }) {
		t.Fatal("the last one never ran")
	}
	for i, pid := range pids {
		head[i] = used(t, pid)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		got := make([]int, len(pids))
		for i, pid := range pids {
			got[i] = used(t, pid) - head[i]
		}
		if took := time.Since(began); enough(got) || took > slowtest.Limit(20*time.Second) {
			return got, took
		}
	}
}

func aSecondAndAHalf(ticks []int) bool {
	sum := 0
	for _, n := range ticks {
		sum += n
	}
	return sum >= 150
}

func TestProcessorsAreLimited(t *testing.T) {
	requireLimit(t, CPU)
	const ticksPerSecond = 100
	got, took := shares(t, aSecondAndAHalf, Limits{CPUs: 0.1}, Limits{CPUs: 4})
	if most := 0.2 * ticksPerSecond * took.Seconds(); float64(got[0]) > most {
		t.Errorf("a tenth of a processor had %d ticks in %v, more than %.0f", got[0], took, most)
	}
}

func TestProcessorsAreSharedByWeight(t *testing.T) {
	requireLimit(t, Weight)
	// An emulated machine accounts for time in lumps: the weights show in the end.
	shown := func(ticks []int) bool { return aSecondAndAHalf(ticks) && ticks[1] >= 4*ticks[0] }
	if got, _ := shares(t, shown, Limits{CPUWeight: 20}, Limits{CPUWeight: 200}); !shown(got) {
		t.Errorf("weight 20 had %d ticks, weight 200 had %d", got[0], got[1])
	}
}
