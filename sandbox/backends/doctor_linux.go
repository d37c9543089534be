package backends

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
)

// Doctor looks for everything that keeps this host from making the strictest
// jail. It makes jails to find out, and changes nothing.
func Doctor(ctx context.Context) []Finding {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		release = nil // a fix without the name of the package manager
	}
	d := parseRelease(string(release))
	path, found := findBwrap(ctx, d)
	findings := []Finding{found}
	if found.Level != LevelProblem {
		findings = append(findings, jailFindings(ctx, path, d)...)
	}
	findings = append(findings, userFinding())
	return append(findings, adviceFindings()...)
}

func findBwrap(ctx context.Context, d distribution) (string, Finding) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return "", Finding{"bwrap", LevelProblem, "bubblewrap is not installed", d.install("bubblewrap")}
	}
	st, err := os.Stat(path)
	if err == nil && st.Mode()&fs.ModeSetuid != 0 {
		return path, Finding{"bwrap", LevelProblem, path + " is set-uid root, which is not needed and takes features away", "sudo chmod u-s " + path}
	}
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{}
	out, err := cmd.Output()
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "bubblewrap ")
	if err != nil || older(version, 0, 8) {
		return path, Finding{"bwrap", LevelProblem, fmt.Sprintf("bubblewrap %s is older than 0.8", version), d.install("bubblewrap")}
	}
	return path, Finding{"bwrap", LevelOK, "bubblewrap " + version + " at " + path, ""}
}

// older reports whether version is before major.minor.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version+".0", ".", 3)
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA != nil || errB != nil || a < major || (a == major && b < minor)
}

// jailFindings makes a jail and reports what holds in it.
func jailFindings(ctx context.Context, path string, d distribution) []Finding {
	features, err := (&bwrap.Backend{Path: path}).Check(ctx)
	if err != nil {
		return []Finding{diagnose(err, d)}
	}
	findings := []Finding{{"jail", LevelOK, "a jail was made, and a program ran in it", ""}}
	for _, f := range []struct {
		feature sandbox.Feature
		level   Level
		without string
		fix     string
	}{
		{sandbox.FeatureLandlock, LevelAdvice, "the kernel has no Landlock: files have one wall instead of two", "boot with lsm=landlock,... where the kernel has it"},
		{sandbox.FeatureMemory, LevelProblem, "no control group can limit memory: a job can use all there is", delegateFix},
		{sandbox.FeaturePIDs, LevelProblem, "no control group can limit processes, and root is not limited otherwise", delegateFix},
		{sandbox.FeatureCPU, LevelAdvice, "no control group can limit processors", delegateFix},
	} {
		if slices.Contains(features, f.feature) {
			findings = append(findings, Finding{string(f.feature), LevelOK, "enforced", ""})
		} else {
			findings = append(findings, Finding{string(f.feature), f.level, f.without, f.fix})
		}
	}
	return findings
}

const writable = 2 // W_OK

const delegateFix = "in the unit of the service: Delegate=memory pids cpu and DelegateSubgroup=worker (systemd 254 and newer)"

func userFinding() Finding {
	if os.Geteuid() != 0 {
		return Finding{"user", LevelOK, "not root", ""}
	}
	return Finding{"user", LevelAdvice, "running as root: files in workspaces belong to root, and a hole in a jail leads to root",
		"run the worker as a user of its own: sudo useradd --system --create-home penstock"}
}

// adviceFindings looks at settings of the host that matter beyond one jail.
func adviceFindings() []Finding {
	var findings []Finding
	for _, s := range []struct {
		check, file, want, message string
	}{
		{"tiocsti", "dev/tty/legacy_tiocsti", "0", "programs may type into their terminal"},
		{"ptrace", "kernel/yama/ptrace_scope", "123", "programs of a user may trace each other"},
	} {
		b, err := os.ReadFile("/proc/sys/" + s.file)
		if value := strings.TrimSpace(string(b)); err == nil && !strings.Contains(s.want, value) {
			findings = append(findings, Finding{s.check, LevelAdvice, s.message + " (outside of jails)",
				"sudo sysctl -w " + strings.ReplaceAll(s.file, "/", ".") + "=" + s.want[:1]})
		}
	}
	for _, socket := range []string{"/run/docker.sock", "/var/run/docker.sock"} {
		if os.Geteuid() != 0 && syscall.Access(socket, writable) == nil {
			return append(findings, Finding{"docker", LevelAdvice, "this user may write to " + socket + ", which is as good as root (it is not visible in jails)",
				"take the user out of the group docker, or use rootless docker"})
		}
	}
	return findings
}
