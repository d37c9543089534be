package backends

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
)

// Doctor looks for everything that keeps this host from making the strictest
// jail with its files below dir. It makes jails to find out, and leaves
// nothing behind.
func Doctor(ctx context.Context, dir string) Report {
	d := thisHost()
	path, found := findBwrap(ctx, d)
	findings := []Finding{found}
	if path != "" {
		findings = append(findings, namespaces(ctx, path, d)...)
	}
	jail := &bwrap.Backend{Path: path}
	features, err := jail.Check(ctx)
	if err == nil {
		findings = append(findings, Finding{Check: "jail", Level: LevelOK, Message: "a jail was made, and a program ran in it"},
			filters(ctx, jail), landlock(), limits(ctx, jail, features), overlay(ctx, jail, dir))
	} else if f := diagnose(err, d); !slices.ContainsFunc(findings, func(known Finding) bool { return known.Check == f.Check && known.Level == LevelProblem }) {
		findings = append(findings, f)
	}
	findings = append(findings, quota(dir))
	other := others(ctx)
	return Report{
		Tier:     tier(err == nil, findings, other),
		Findings: slices.Concat(findings, other, hostFindings(os.DirFS("/"), os.Geteuid())),
	}
}

// others tries the backends that are no bubblewrap. Their checks have their
// names.
func others(ctx context.Context) []Finding {
	var findings []Finding
	for _, name := range Names() {
		switch name {
		case "bwrap", "none":
			continue
		case "oci":
			findings = append(findings, containers(ctx, thisHost()))
			continue
		}
		if _, err := First(ctx, name); err != nil {
			findings = append(findings, Finding{Check: name, Level: LevelAdvice, Message: err.Error(), Price: "jobs cannot ask for this backend"})
			continue
		}
		findings = append(findings, Finding{Check: name, Level: LevelOK, Message: "a jail was made"})
	}
	return findings
}

// tier sums up findings about jails by bubblewrap, and those about others.
func tier(jail bool, findings, others []Finding) Tier {
	switch {
	case jail && !slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == LevelProblem }):
		return TierFull
	case jail:
		return TierDegraded
	}
	best := TierNone
	for _, f := range others {
		switch {
		case f.Level != LevelOK:
		case f.Check == "oci":
			best = TierContainer
		default:
			return TierDegraded
		}
	}
	return best
}

func findBwrap(ctx context.Context, d distribution) (string, Finding) {
	f := Finding{Check: "bwrap", Level: LevelProblem}
	path, err := exec.LookPath("bwrap")
	if err != nil {
		f.Message, f.Fix = "bubblewrap is not installed", d.install("bubblewrap")
		return "", f
	}
	st, err := os.Stat(path)
	if err == nil && st.Mode()&fs.ModeSetuid != 0 {
		f.Message, f.Fix = path+" is set-uid root, which is not needed and takes features away", "sudo chmod u-s "+path
		return path, f
	}
	out, err := try(ctx, path, "--version")
	version := strings.TrimPrefix(out, "bubblewrap ")
	if err != nil || older(version, 0, 8) {
		f.Message, f.Fix = fmt.Sprintf("bubblewrap %s is older than 0.8", version), d.install("bubblewrap")
		return path, f
	}
	return path, Finding{Check: "bwrap", Level: LevelOK, Message: "bubblewrap " + version + " at " + path}
}

// try runs a program without an environment, and returns what it says.
func try(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{}, "/", time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	text := strings.TrimSpace(said.String())
	if err != nil {
		err = fmt.Errorf("%s: %w", text, err)
	}
	return text, err
}

// older reports whether version is before major.minor.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version+".0", ".", 3)
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA != nil || errB != nil || a < major || (a == major && b < minor)
}

// namespaces tries those that need permissions, one by one.
func namespaces(ctx context.Context, path string, d distribution) []Finding {
	program, err := exec.LookPath("true")
	if err != nil {
		program = "/bin/true"
	}
	var findings []Finding
	for _, n := range []struct {
		check, means string
		args         []string
	}{
		{"userns", "a user of its own", nil},
		{"netns", "a network of its own", []string{"--unshare-net"}},
		{"proc", "a process table of its own", []string{"--unshare-pid", "--proc", "/proc"}},
	} {
		args := slices.Concat([]string{"--unshare-user", "--ro-bind", "/", "/"}, n.args, []string{"--", program})
		_, err := try(ctx, path, args...)
		if err == nil {
			findings = append(findings, Finding{Check: n.check, Level: LevelOK, Message: n.means + " was made"})
			continue
		}
		f := diagnose(err, d)
		f.Check, f.Price = n.check, "no jail by bubblewrap"
		findings = append(findings, f)
		if n.check == "userns" {
			break // the others need it
		}
	}
	return findings
}

// filters looks from inside whether the walls that have no sign outside hold.
func filters(ctx context.Context, jail sandbox.Backend) Finding {
	f := Finding{Check: "seccomp", Level: LevelProblem, Price: "programs inside reach more of the kernel", Fix: "a kernel with CONFIG_SECCOMP_FILTER"}
	out, exit, err := sandbox.Output(ctx, jail, sandbox.Spec{Args: []string{"cat", "/proc/self/status"}})
	if err != nil || !exit.Success() {
		f.Message = fmt.Sprintf("could not be seen from inside: %v, %v", exit, err)
		return f
	}
	for _, want := range []string{"Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"} {
		if !strings.Contains(string(out), "\n"+want+"\n") {
			f.Message = "a program inside does not have " + strings.ReplaceAll(want, "\t", " ")
			return f
		}
	}
	return Finding{Check: "seccomp", Level: LevelOK, Message: "programs inside are filtered, and have no privileges to use or gain"}
}

// limits sets all that the host has, for real.
func limits(ctx context.Context, jail sandbox.Backend, features []sandbox.Feature) Finding {
	var missing, watched []string
	spec := sandbox.Spec{Args: []string{"true"}}
	for _, l := range []struct {
		feature sandbox.Feature
		set     func()
	}{
		{sandbox.FeatureMemory, func() { spec.Limits.Memory = 64 << 20 }},
		{sandbox.FeaturePIDs, func() { spec.Limits.PIDs = 64 }},
		{sandbox.FeatureCPU, func() { spec.Limits.CPUs = 1 }},
		{sandbox.FeatureCPUWeight, func() { spec.Limits.CPUWeight = 50 }},
	} {
		switch {
		case slices.Contains(features, l.feature):
			l.set()
		case l.feature.Kept():
			l.set()
			watched = append(watched, string(l.feature))
		default:
			missing = append(missing, string(l.feature))
		}
	}
	exit, err := sandbox.Run(ctx, jail, spec, sandbox.Streams{})
	if err == nil && !exit.Success() {
		err = errors.New(exit.String())
	}
	return limited(missing, watched, err)
}

// limited is the pure part: which limits are missing, which are kept by
// looking at the jail, and whether the others could be set.
func limited(missing, watched []string, err error) Finding {
	f := Finding{Check: "cgroup", Level: LevelAdvice, Fix: delegateFix}
	if err != nil {
		f.Level, f.Message, f.Price = LevelProblem, "limits cannot be set: "+err.Error(), "no jail with limits"
		return f
	}
	var words, prices []string
	if len(missing) > 0 {
		words = append(words, "no control group can limit "+strings.Join(missing, ", "))
		prices = append(prices, "a job that sets such a limit is refused")
	}
	if len(watched) > 0 {
		words = append(words, strings.Join(watched, ", ")+" is watched, and limited by no control group")
		prices = append(prices, "a job can be beyond it for a moment")
	}
	if slices.Contains(missing, string(sandbox.FeaturePIDs)) || slices.Contains(missing, string(sandbox.FeatureMemory)) {
		f.Level = LevelProblem
		prices = append(prices, "one that sets none can use all there is")
	}
	if words == nil {
		return Finding{Check: "cgroup", Level: LevelOK, Message: "memory, processes and processors of a jail were limited"}
	}
	f.Message, f.Price = strings.Join(words, "; "), strings.Join(prices, "; ")
	return f
}
