package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-run/penstock/cmd/penstock/doctorcmd"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// examined runs doctor in some way and returns what it found, by check.
func (f *fixture) examined(cmd *exec.Cmd) (found map[string]doctorcmd.Finding, code int) {
	f.Helper()
	cmd.Stderr = os.Stderr
	out, _ := cmd.Output() // how it ended is in ProcessState
	var list []doctorcmd.Finding
	if err := json.Unmarshal(out, &list); err != nil {
		f.Fatalf("%v: %v, %v\n%s", cmd.Args, cmd.ProcessState, err, out)
	}
	found = map[string]doctorcmd.Finding{}
	for _, x := range list {
		if _, double := found[x.Check]; double {
			f.Errorf("%s is there twice", x.Check)
		}
		found[x.Check] = x
	}
	return found, cmd.ProcessState.ExitCode()
}

// wants fails unless the checks have those statuses.
func (f *fixture) wants(found map[string]doctorcmd.Finding, want map[string]string) {
	f.Helper()
	for check, status := range want {
		if found[check].Status != status {
			f.Errorf("%s: got %+v, want %s", check, found[check], status)
		}
		if status == "fail" && found[check].Fix == "" {
			f.Errorf("%+v has no fix", found[check])
		}
	}
}

// Where a jail can be made, doctor says so; on hosts that lack something, it
// names what.
func TestDoctorOnOtherHosts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	found, code := f.examined(f.command("doctor", "-o", "json"))
	f.wants(found, map[string]string{"system": "ok", "git": "ok", "bwrap": "ok", "userns": "ok", "netns": "ok", "proc": "ok", "jail": "ok", "seccomp": "ok", "data": "ok", "policy": "ok"})
	if code != 0 || found["view"].Detail == "" || found["tier"].Detail == "none" {
		t.Errorf("ended with %d; view %+v, tier %+v", code, found["view"], found["tier"])
	}

	t.Run("without user namespaces", func(t *testing.T) {
		if err := exec.Command("unshare", "-Ur", "true").Run(); err != nil {
			t.Skipf("no user namespace to begin with: %v", err)
		}
		// Without an engine either: its containers are jails, too.
		const withoutJails = `[ ! -S /run/docker.sock ] || mount --bind /dev/null /run/docker.sock; echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"`
		cmd := f.command("doctor", "-o", "json")
		cmd.Args = append([]string{"unshare", "-Urm", "sh", "-c", withoutJails, "sh"}, cmd.Args...)
		cmd.Path, cmd.Err = lookPath(t, "unshare"), nil
		found, code := f.examined(cmd)
		f.wants(found, map[string]string{"bwrap": "ok", "userns": "fail", "tier": "fail"})
		if code != 1 || found["tier"].Detail != "none" || !strings.Contains(found["userns"].Fix, "max_user_namespaces") {
			t.Errorf("ended with %d, userns %+v", code, found["userns"])
		}
	})
	t.Run("in a jail", func(t *testing.T) {
		program := lookPath(t, "penstock")
		real, err := filepath.EvalSymlinks(program)
		f.must(err)
		ws := t.TempDir()
		copyProgram(t, real, filepath.Join(ws, "penstock"))
		cmd := f.command("sandbox", "run", "--progress", "quiet", "--", "./penstock", "doctor", "-o", "json")
		cmd.Dir = ws
		found, code := f.examined(cmd)
		f.wants(found, map[string]string{"bwrap": "ok", "userns": "fail", "tier": "fail", "root": "ok"})
		if code != 1 {
			t.Errorf("ended with %d", code)
		}
	})
	t.Run("with bubblewrap set-uid", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root makes a program set-uid root")
		}
		bin := t.TempDir()
		copyProgram(t, lookPath(t, "bwrap"), filepath.Join(bin, "bwrap"))
		f.must(os.Chmod(filepath.Join(bin, "bwrap"), 0o755|os.ModeSetuid))
		cmd := f.command("doctor", "-o", "json")
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
		found, _ := f.examined(cmd)
		if found["bwrap"].Status == "ok" || !strings.Contains(found["bwrap"].Fix, "chmod u-s "+bin) {
			t.Errorf("got %+v", found["bwrap"])
		}
	})
	t.Run("as an ordinary user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("this is one already")
		}
		home, err := os.MkdirTemp("/var/tmp", "penstock-test-") //nolint:usetesting // its parent is closed to other users
		f.must(err)
		t.Cleanup(func() { os.RemoveAll(home) })
		f.must(os.Chmod(home, 0o755))
		data := filepath.Join(home, "data")
		f.must(os.Mkdir(data, 0o700))
		const nobody = 65534
		f.must(os.Chown(data, nobody, nobody))
		real, err := filepath.EvalSymlinks(lookPath(t, "penstock"))
		f.must(err)
		copyProgram(t, real, filepath.Join(home, "penstock"))
		cmd := exec.Command(filepath.Join(home, "penstock"), "doctor", "-o", "json")
		cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + data, "PENSTOCK_DATA=" + data}
		cmd.Dir = home
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		found, _ := f.examined(cmd)
		f.wants(found, map[string]string{"root": "ok", "data": "ok", "bwrap": "ok"})
		if (found["userns"].Status == "ok") != (found["jail"].Status == "ok") {
			t.Errorf("userns %+v, jail %+v", found["userns"], found["jail"])
		}
		if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, err %v", left, err)
		}
	})
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not here: %v", name, err)
	}
	return path
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = exectest.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
