package backends

import (
	"bufio"
	"strings"
)

// A Level says how much a finding matters.
type Level string

// The levels.
const (
	LevelOK      Level = "ok"
	LevelAdvice  Level = "advice"  // jails work, something could be better
	LevelProblem Level = "problem" // something is not enforced, or no jail can be made
)

// A Finding is what one check of the host found.
type Finding struct {
	Check   string `json:"check"` // a stable word: "bwrap", "userns"
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"` // a command for this distribution
}

// A distribution knows how its users install and configure things.
type distribution struct {
	id   string // of os-release
	like string
}

func parseRelease(osRelease string) distribution {
	var d distribution
	for s := bufio.NewScanner(strings.NewReader(osRelease)); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			d.id = value
		case "ID_LIKE":
			d.like = value
		}
	}
	return d
}

func (d distribution) is(family string) bool {
	return d.id == family || strings.Contains(" "+d.like+" ", " "+family+" ")
}

// install returns the command that installs a package.
func (d distribution) install(pkg string) string {
	for _, m := range []struct{ family, command string }{
		{"debian", "sudo apt install "}, {"ubuntu", "sudo apt install "}, {"fedora", "sudo dnf install "},
		{"rhel", "sudo dnf install "}, {"arch", "sudo pacman -S "}, {"alpine", "sudo apk add "},
		{"suse", "sudo zypper install "}, {"opensuse", "sudo zypper install "}, {"void", "sudo xbps-install "},
	} {
		if d.is(m.family) {
			return m.command + pkg
		}
	}
	if d.id == "nixos" {
		return "environment.systemPackages = [ pkgs." + pkg + " ];"
	}
	return "install the package " + pkg
}

// A symptom is something in a failed attempt's own words that names its cause.
type symptom struct {
	check   string
	text    string // in the words of the mechanism
	message string
	fix     func(distribution) string
}

var symptoms = []symptom{
	{"proc", "Can't mount proc", "a process table of its own cannot be mounted: this is a container that hides parts of /proc", nestedFix},
	{"netns", "RTM_NEWADDR", "network namespaces are restricted by AppArmor", appArmorFix},
	{"userns", "setting up uid map", "user namespaces are restricted by AppArmor, or this is root in a container without CAP_SETFCAP", appArmorFix},
	{"userns", "No permissions to create new namespace", "user namespaces are off for this user", usernsFix},
	{"userns", "Creating new namespace failed", "user namespaces are off, or used up", usernsFix},
	{"userns", "max_user_namespaces", "user namespaces are off, or used up", usernsFix},
	{"userns", "Operation not permitted", "the kernel, or the container around this program, does not permit namespaces", nestedFix},
}

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
		return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
	}
	return "sudo sysctl -w user.max_user_namespaces=15000"
}

func nestedFix(distribution) string {
	return "docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined; podman: --security-opt unmask=ALL"
}

// diagnose turns the error of an attempt into a finding.
func diagnose(err error, d distribution) Finding {
	for _, s := range symptoms {
		if strings.Contains(err.Error(), s.text) {
			return Finding{s.check, LevelProblem, s.message + ": " + err.Error(), s.fix(d)}
		}
	}
	return Finding{"jail", LevelProblem, err.Error(), ""}
}
