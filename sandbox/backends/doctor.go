package backends

import (
	"bufio"
	"slices"
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
	Price   string `json:"price,omitempty"` // what it costs to leave it so
	Fix     string `json:"fix,omitempty"`   // a command for this distribution
}

// A Tier sums up what jails a host can make.
type Tier string

// The tiers, from the best.
const (
	TierFull      Tier = "full"      // namespaces, and everything is enforced
	TierDegraded  Tier = "degraded"  // a jail, in which something is not enforced
	TierContainer Tier = "container" // only an engine can make one
	TierNone      Tier = "none"
)

// A Report is what [Doctor] found.
type Report struct {
	Tier     Tier      `json:"tier"`
	Findings []Finding `json:"findings"`
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

// Environment looks for secrets in an environment, "K=V", by their names.
func Environment(environ []string) Finding {
	var found []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		secret := upper == "SSH_AUTH_SOCK" || slices.ContainsFunc(
			[]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY"},
			func(part string) bool { return strings.Contains(upper, part) })
		if secret && value != "" {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return Finding{Check: "environment", Level: LevelOK, Message: "holds no secrets; jails inherit nothing of it"}
	}
	slices.Sort(found)
	return Finding{
		Check: "environment", Level: LevelAdvice, Message: "holds " + strings.Join(found, ", ") + "; jails inherit nothing of it",
		Price: "backend none, and other programs of this user, can read it", Fix: "start this program with the variables that it needs",
	}
}
