package backends

import (
	"os"
	"strings"
)

// A symptom is something in a failed attempt's own words that names its cause.
type symptom struct {
	check   string
	text    string // in the words of the mechanism
	message string
	fix     func(distribution) string
}

var symptoms = []symptom{
	{"bwrap", "executable file not found", "a program that makes jails is not installed", bwrapFix},
	{"proc", "Can't mount proc", "a process table of its own cannot be mounted: this is a container that hides parts of /proc", nestedFix},
	{"netns", "RTM_NEWADDR", "network namespaces are restricted by AppArmor", appArmorFix},
	{"userns", "setting up uid map", "user namespaces are restricted by AppArmor, or this is root in a container without CAP_SETFCAP", appArmorFix},
	{"userns", "No permissions to create new namespace", "user namespaces are off for this user", usernsFix},
	{"userns", "Creating new namespace failed", "user namespaces are off, or used up", usernsFix},
	{"userns", "max_user_namespaces", "user namespaces are off, or used up", usernsFix},
	{"cgroup", "limits: ", "a control group for the jail cannot be made", func(distribution) string { return delegateFix }},
	{"userns", "Operation not permitted", "the kernel, or the container around this program, does not permit namespaces", nestedFix},
	{"overlay", "overlay", "directories cannot be laid over each other here", func(distribution) string { return overlayFix }},
}

const (
	delegateFix = "in the unit of the service: Delegate=memory pids cpu and DelegateSubgroup=worker (systemd 254 and newer); for a user: loginctl enable-linger"
	overlayFix  = "put the data directory on ext4, xfs or btrfs (in a container: on a volume), with Linux 5.11 or newer"
)

func bwrapFix(d distribution) string { return d.install("bubblewrap") }

func appArmorFix(d distribution) string {
	if !d.is("ubuntu") && !d.is("debian") {
		return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return "sudo apt install apparmor-profiles apparmor-utils && " +
		"sudo install -m0644 /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && " +
		"sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
}

func usernsFix(d distribution) string {
	if d.is("debian") {
		return "sudo sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1"
	}
	return "sudo sysctl -w user.max_user_namespaces=15000"
}

func nestedFix(distribution) string {
	return "docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined; podman: --security-opt unmask=ALL; " +
		"Kubernetes: procMount: Unmasked and hostUsers: false"
}

// thisHost reads which distribution this is. Where that is not known, fixes
// do not name a package manager.
func thisHost() distribution {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if release, err := os.ReadFile(file); err == nil {
			return parseRelease(string(release))
		}
	}
	return distribution{}
}

// Diagnose names the check that an error of a jail belongs to, where its
// words give the cause away, and the fix on this host.
func Diagnose(err error) (Finding, bool) {
	f := diagnose(err, thisHost())
	return f, f.Check != unknown
}

// unknown is the check for failures that belong to no other check.
const unknown = "jail"

// diagnose turns the error of an attempt into a finding.
func diagnose(err error, d distribution) Finding {
	for _, s := range symptoms {
		if strings.Contains(err.Error(), s.text) {
			return Finding{Check: s.check, Level: LevelProblem, Message: s.message + ": " + err.Error(), Fix: s.fix(d)}
		}
	}
	return Finding{Check: unknown, Level: LevelProblem, Message: err.Error()}
}
