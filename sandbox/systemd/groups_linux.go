package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/internal/layout"
)

// walls are the features of every jail that can be made.
func walls() []sandbox.Feature {
	f := []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork,
		sandbox.FeatureSyscalls, sandbox.FeaturePrivileges, sandbox.FeatureTemporary, sandbox.FeatureKill,
	}
	if layout.Landlock() {
		f = append(f, sandbox.FeatureLandlock)
	}
	return f
}

// groups lists the limits that are in force for the trial's unit: the manager
// accepts properties that it cannot apply.
func (t tools) groups(ctx context.Context, label string) ([]sandbox.Feature, error) {
	args := t.args(t.ctl, "show", "--property=ControlGroup", "--value", "penstock-"+label+"_*.service")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append([]string{}, t.env()...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("look for the control group: %w", said(err))
	}
	own := strings.TrimSpace(string(out))
	if !strings.HasPrefix(own, "/") || strings.Contains(own, "\n") {
		return nil, fmt.Errorf("look for the control group: systemctl says %q", own)
	}
	return inForce("/sys/fs/cgroup", own), nil
}

// inForce compares the files of a control group with what was tried. Memory
// is limited only if it cannot be swapped out instead.
func inForce(root, group string) []sandbox.Feature {
	is := func(want, controller, file string) bool {
		b, err := os.ReadFile(filepath.Join(root, controller, group, file))
		return err == nil && strings.TrimSpace(string(b)) == want
	}
	memory, tasks := strconv.FormatInt(tried.Memory, 10), strconv.Itoa(tried.PIDs+ours)
	var f []sandbox.Feature
	add := func(feature sandbox.Feature, holds bool) {
		if holds {
			f = append(f, feature)
		}
	}
	noSwap := !hasSwap()
	add(sandbox.FeatureMemory, is(memory, "", "memory.max") && (noSwap || is("0", "", "memory.swap.max")) ||
		is(memory, "memory", "memory.limit_in_bytes") && noSwap)
	add(sandbox.FeaturePIDs, is(tasks, "", "pids.max") || is(tasks, "pids", "pids.max"))
	add(sandbox.FeatureCPU, is("90000 100000", "", "cpu.max") || is("90000", "cpu", "cpu.cfs_quota_us"))
	add(sandbox.FeatureCPUWeight, is(strconv.Itoa(tried.CPUWeight), "", "cpu.weight"))
	return f
}

func hasSwap() bool {
	b, err := os.ReadFile("/proc/swaps")
	return !errors.Is(err, os.ErrNotExist) && strings.Count(string(b), "\n") > 1
}
