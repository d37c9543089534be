package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// nobody is a user without rights.
const nobody = 65534

// as has a command run as that user, in a directory of his own.
func (f *fixture) as(uid int, args ...string) *exec.Cmd {
	f.Helper()
	home, err := os.MkdirTemp("/opt", "penstock-test-") // open to other users, and not hidden in a jail
	f.must(err)
	f.Cleanup(func() { os.RemoveAll(home) })
	f.must(os.Chmod(home, 0o755))
	copyProgram(f.T, lookPath(f.T, "penstock"), filepath.Join(home, "penstock"))
	for _, name := range []string{"data", "tmp"} {
		f.must(os.Mkdir(filepath.Join(home, name), 0o700))
		f.must(os.Chown(filepath.Join(home, name), uid, uid))
	}
	data := filepath.Join(home, "data")
	cmd := f.command(args...)
	cmd.Path, cmd.Dir = filepath.Join(home, "penstock"), home
	cmd.Env = append(cmd.Env, "PENSTOCK_DATA="+data, "HOME="+data, "TMPDIR="+filepath.Join(home, "tmp"), "PATH="+home+":/usr/local/bin:/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// environments lists the processes that have a word in their environment, and
// how many could be looked at, as a user sees them.
func (f *fixture) environments(uid int, word string) (found []string, seen int) {
	f.Helper()
	cmd := exec.Command("sh", "-c", `for p in /proc/[0-9]*; do
		tr '\0' '\n' <$p/environ >/tmp/penstock-environ-$$ 2>/dev/null || continue
		if grep -qF -f - /tmp/penstock-environ-$$ <<-END
		`+word+`
		END
		then echo "$p $(tr '\0' ' ' <$p/cmdline | cut -c1-200)"; else echo seen; fi
	done; rm /tmp/penstock-environ-$$`)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.Output()
	f.must(err)
	for line := range strings.Lines(string(out)) {
		if seen++; line != "seen\n" {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, seen
}

// No other program can read a key, a secret of a job or a password of an address in the
// environment of any process of a worker, however it was started: not another program
// of the same user, and not an agent without a jail.
func TestSecretsAreInNoEnvironment(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it runs programs as several users")
	}
	for _, tt := range []struct {
		name string
		uid  int
		args []string
	}{
		{"serve", 0, []string{"serve", "--listen", "127.0.0.1:0", "--admin", "", "--slots", "1", "--drain", "1s"}},
		{"run", 0, []string{"run", "--backend", "none"}},
		{"run as somebody", nobody, []string{"run", "--backend", "none"}},
		{"run as somebody in a jail", nobody, []string{"run"}},
		{"batch as somebody", nobody, []string{"batch", "run", "--backend", "none"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.open()
			upstream := httptest.NewServer(agenttest.New())
			t.Cleanup(upstream.Close)
			word := rand.Text()
			f.env = []string{
				"ANTHROPIC_API_KEY=sk-a-" + word, "OPENAI_API_KEY=sk-o-" + word, "GEMINI_API_KEY=g-" + word, "PENSTOCK_GOOGLE_API_KEY=g2-" + word,
				"PENSTOCK_SECRET_NPM_TOKEN=npm-" + word, "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL, "PENSTOCK_LOG_LEVEL=debug",
			}
			// An agent looks by itself; without a jail it is another program of the same user.
			script := `echo "found:" $(cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -cF ` + word + `); sleep 300`
			args := slices.Clone(tt.args)
			switch {
			case tt.args[0] == "batch":
				file := filepath.Join(filepath.Dir(f.repo), "issues.jsonl")
				f.must(os.WriteFile(file, []byte(`{"item":"1","prompt":"x"}`+"\n"), 0o644))
				args = append(args, file, "--repo", f.repo, "--out", "tmp/out", "--", "sh", "-c", script)
			case tt.args[0] == "run":
				args = append(args, "--repo", f.repo, "--", "sh", "-c", script)
			}
			cmd := f.as(tt.uid, args...)
			log := &syncBuffer{}
			cmd.Stdout, cmd.Stderr = log, log
			f.must(cmd.Start())
			p := &program{Cmd: cmd, log: log}
			t.Cleanup(func() { p.end(); f.note(p, args) })
			if tt.args[0] == "serve" {
				f.eventually(60*time.Second, "it serves", func() bool { return strings.Contains(log.String(), "serving") })
				f.run("submit", "--data", filepath.Join(cmd.Dir, "data"), "--backend", "none", "--repo", f.repo, "--", "sh", "-c", script)
			}
			self := "/proc/" + fmt.Sprint(cmd.Process.Pid)
			f.eventually(60*time.Second, "the agent sleeps", func() bool { return sleeps(cmd.Process.Pid) })
			for _, uid := range []int{0, tt.uid} {
				found, seen := f.environments(uid, word)
				if len(found) > 0 || seen < 3 && uid == 0 {
					t.Errorf("user %d finds it in %q, and saw %d", uid, found, seen)
				}
			}
			look := exec.Command("sh", "-c", "head -c 1 "+self+"/environ; head -c 1 "+self+"/mem; ls "+self+"/fd; true")
			look.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			said, err := look.CombinedOutput()
			f.must(err)
			if n := bytes.Count(said, []byte("Permission denied")); n != 3 {
				t.Errorf("another program can look into it:\n%s", said)
			}
		})
	}
}

// sleeps reports whether something below a process is called sleep.
func sleeps(pid int) bool {
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range children {
		list, _ := os.ReadFile(name) // it may have ended
		for child := range strings.FieldsSeq(string(list)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			var number int
			if _, err := fmt.Sscan(child, &number); err == nil && (string(comm) == "sleep\n" || sleeps(number)) {
				return true
			}
		}
	}
	return false
}
