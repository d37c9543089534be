package backends

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestDiagnosesNameTheCauseAndTheFix(t *testing.T) {
	ubuntu := parseRelease("NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n")
	rocky := parseRelease("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n")
	for _, c := range []struct {
		said  string
		on    distribution
		check string
		fix   string
	}{
		{"bwrap: set up: setting up uid map: Permission denied", ubuntu, "userns", "apparmor_parser"},
		{"bwrap: set up: loopback: Failed RTM_NEWADDR: Operation not permitted", ubuntu, "netns", "apparmor_parser"},
		{"bwrap: set up: No permissions to create new namespace, likely because…", rocky, "userns", "max_user_namespaces"},
		{"bwrap: set up: Can't mount proc on /newroot/proc: Operation not permitted", rocky, "proc", "systempaths=unconfined"},
		{"bwrap: set up: something new", rocky, "jail", ""},
	} {
		got := diagnose(errors.New(c.said), c.on)
		if got.Check != c.check || got.Level != LevelProblem || !strings.Contains(got.Fix, c.fix) || !strings.Contains(got.Message, c.said) {
			t.Errorf("%q: got %+v, want check %s and a fix with %q", c.said, got, c.check, c.fix)
		}
	}
	for release, want := range map[string]string{
		"ID=debian": "sudo apt install b", "ID=rocky\nID_LIKE=\"rhel centos fedora\"": "sudo dnf install b", "ID=arch": "sudo pacman -S b",
		"ID=alpine": "sudo apk add b", "ID=opensuse-leap\nID_LIKE=\"suse opensuse\"": "sudo zypper install b",
		"ID=nixos": "environment.systemPackages = [ pkgs.b ];", "": "install the package b",
	} {
		if got := parseRelease(release).install("b"); got != want {
			t.Errorf("%q: got %q, want %q", release, got, want)
		}
	}
}

func TestEnvironmentNamesSecrets(t *testing.T) {
	got := Environment([]string{"PATH=/bin", "AWS_SECRET_ACCESS_KEY=hidden", "SSH_AUTH_SOCK=/x", "GITHUB_TOKEN=", "npm_token=hidden", "HOME=/h"})
	if got.Level != LevelAdvice || !strings.Contains(got.Message, "AWS_SECRET_ACCESS_KEY, SSH_AUTH_SOCK, npm_token") || strings.Contains(got.Message, "hidden") {
		t.Errorf("got %+v", got)
	}
	if got := Environment([]string{"PATH=/bin"}); got.Level != LevelOK {
		t.Errorf("got %+v", got)
	}
}

func TestDiagnoseSaysWhereItKnows(t *testing.T) {
	if f, known := Diagnose(errors.New("bwrap: set up: Can't mount proc on /newroot/proc")); !known || f.Check != "proc" {
		t.Errorf("got %+v, %v", f, known)
	}
	if f, known := Diagnose(errors.New("something new")); known {
		t.Errorf("got %+v for what nobody knows", f)
	}
}

func TestDoctorFindsWhatCheckFinds(t *testing.T) {
	dir := t.TempDir()
	report := Doctor(t.Context(), dir)
	byCheck := map[string]Finding{}
	for _, f := range report.Findings {
		if f.Check == "" || f.Message == "" || (f.Level == LevelProblem && f.Fix == "" && f.Check != "jail") {
			t.Errorf("%+v says too little", f)
		}
		if _, double := byCheck[f.Check]; double {
			t.Errorf("%s is there twice", f.Check)
		}
		byCheck[f.Check] = f
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, err %v", left, err)
	}
	if report.Tier == TierFull && slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Level == LevelProblem }) {
		t.Errorf("full, with a problem: %+v", report)
	}
	b, err := New(t.Context(), Auto)
	if runtime.GOOS == "linux" && (err == nil) != (report.Tier != TierNone) {
		t.Errorf("New says %v and Doctor says %s", err, report.Tier)
	}
	if runtime.GOOS == "linux" && (err == nil && b.Name() == "bwrap") != (byCheck["jail"].Level == LevelOK) {
		t.Errorf("New says %v, %v and Doctor says %+v", b, err, byCheck["jail"])
	}
}
