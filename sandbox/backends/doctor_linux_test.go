package backends

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

func TestOlder(t *testing.T) {
	for version, want := range map[string]bool{"0.7.0": true, "0.8.0": false, "0.11.1": false, "1.0": false, "": true, "x": true, "0.8": false} {
		if got := older(version, 0, 8); got != want {
			t.Errorf("%q: got %v", version, got)
		}
	}
}

func TestLimited(t *testing.T) {
	for _, c := range []struct {
		missing, watched []string
		err              error
		level            Level
		says             string
	}{
		{nil, nil, nil, LevelOK, "were limited"},
		{[]string{"cpu", "cpu-weight"}, nil, nil, LevelAdvice, "can limit cpu, cpu-weight"},
		{[]string{"cpu"}, []string{"memory"}, nil, LevelAdvice, "memory is watched"},
		{[]string{"pids"}, nil, nil, LevelProblem, "pids"},
		{nil, nil, errors.New("read-only"), LevelProblem, "read-only"},
	} {
		got := limited(c.missing, c.watched, c.err)
		if got.Level != c.level || !strings.Contains(got.Message, c.says) || (got.Level != LevelOK && (got.Price == "" || got.Fix == "")) {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

func TestTier(t *testing.T) {
	ok, advice, problem := Finding{Level: LevelOK}, Finding{Level: LevelAdvice}, Finding{Level: LevelProblem}
	named := func(name string, l Level) []Finding { return []Finding{{Check: name, Level: l}} }
	for _, c := range []struct {
		jail     bool
		findings []Finding
		others   []Finding
		want     Tier
	}{
		{true, []Finding{ok, advice}, named("oci", LevelAdvice), TierFull},
		{true, []Finding{ok, problem}, named("oci", LevelOK), TierDegraded},
		{false, []Finding{problem}, named("oci", LevelOK), TierContainer},
		{false, []Finding{problem}, append(named("oci", LevelOK), named("systemd", LevelOK)...), TierDegraded},
		{false, []Finding{problem}, named("oci", LevelAdvice), TierNone},
		{false, []Finding{problem}, nil, TierNone},
	} {
		if got := tier(c.jail, c.findings, c.others); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// Hosts that are not this one.
func TestHostFindings(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
	for name, c := range map[string]struct {
		host fs.FS
		uid  int
		want map[string]Level // absent: no finding of that check
	}{
		"hardened": {fstest.MapFS{
			"proc/sys/dev/tty/legacy_tiocsti": file("0\n"), "proc/sys/kernel/yama/ptrace_scope": file("2\n"),
			"proc/sys/kernel/io_uring_disabled": file("2\n"), "proc/sys/vm/unprivileged_userfaultfd": file("0\n"), "proc/version": file("Linux version 6.12"),
		}, 1000, map[string]Level{"root": LevelOK, "tiocsti": LevelOK, "yama": LevelOK, "io_uring": LevelOK, "userfaultfd": LevelOK}},
		"lax": {fstest.MapFS{
			"proc/sys/dev/tty/legacy_tiocsti": file("1\n"), "proc/sys/kernel/yama/ptrace_scope": file("0\n"),
			"proc/sys/kernel/io_uring_disabled": file("0\n"), "proc/sys/vm/unprivileged_userfaultfd": file("1\n"), "dev/kvm": file(""),
		}, 0, map[string]Level{"root": LevelAdvice, "tiocsti": LevelAdvice, "yama": LevelAdvice, "io_uring": LevelAdvice, "userfaultfd": LevelAdvice, "kvm": LevelOK}},
		"wsl 1":  {fstest.MapFS{"proc/version": file("Linux version 4.4.0-19041-Microsoft")}, 1000, map[string]Level{"root": LevelOK, "wsl": LevelProblem}},
		"wsl 2":  {fstest.MapFS{"proc/version": file("Linux version 5.15.0-microsoft-standard-WSL2")}, 1000, map[string]Level{"root": LevelOK, "wsl": LevelOK}},
		"docker": {fstest.MapFS{".dockerenv": file("")}, 1000, map[string]Level{"root": LevelOK, "nested": LevelOK}},
		"podman": {fstest.MapFS{"run/.containerenv": file("")}, 1000, map[string]Level{"root": LevelOK, "nested": LevelOK}},
	} {
		got := map[string]Level{}
		for _, f := range hostFindings(c.host, c.uid) {
			if f.Check == "docker.sock" {
				continue // of this host
			}
			got[f.Check] = f.Level
			if f.Level != LevelOK && (f.Price == "" || f.Fix == "") {
				t.Errorf("%s: %+v has no price or no fix", name, f)
			}
		}
		for check, want := range c.want {
			if got[check] != want {
				t.Errorf("%s: %s is %q, want %q", name, check, got[check], want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestQuotaIsOfTheNearestMount(t *testing.T) {
	const mounts = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 8:2 / /data rw - xfs /dev/sdb rw,prjquota
31 22 8:3 / /data2 rw - xfs /dev/sdc rw,noquota
garbage
`
	for dir, want := range map[string]struct {
		level Level
		text  string
	}{
		"/home/u": {LevelAdvice, "tune2fs"}, "/data/jobs": {LevelOK, ""}, "/data": {LevelOK, ""}, "/data2/x": {LevelAdvice, "mount with prjquota"}, "/database": {LevelAdvice, "tune2fs"},
	} {
		if got := quotaOf(mounts, dir); got.Level != want.level || !strings.Contains(got.Fix, want.text) {
			t.Errorf("%s: got %+v", dir, got)
		}
	}
}
