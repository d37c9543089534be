package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A home full of secrets, and an environment full of them: a command in a
// jail finds none, wherever it looks, and reaches no agent that holds one.
func TestNoSecretIsSeen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := rand.Text()
	home, ws := t.TempDir(), t.TempDir()
	for _, name := range []string{
		".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".config/gcloud/application_default_credentials.json", ".azure/token.json",
		".kube/config", ".docker/config.json", ".netrc", ".npmrc", ".git-credentials", ".gitconfig", ".gnupg/secring.gpg",
		".config/gh/hosts.yml", ".bash_history", ".claude/.credentials.json", ".codex/auth.json", "private/notes.txt",
	} {
		path := filepath.Join(home, name)
		f.must(os.MkdirAll(filepath.Dir(path), 0o700))
		f.must(os.WriteFile(path, []byte(secret), 0o600))
	}
	agent, err := net.Listen("unix", filepath.Join(home, "agent.sock"))
	f.must(err)
	defer agent.Close()
	f.env = []string{
		"HOME=" + home, "SSH_AUTH_SOCK=" + agent.Addr().String(), "DOCKER_HOST=unix://" + agent.Addr().String(),
		"DBUS_SESSION_BUS_ADDRESS=unix:path=" + agent.Addr().String(), "GPG_AGENT_INFO=" + agent.Addr().String(),
		"AWS_SECRET_ACCESS_KEY=" + secret, "AWS_SESSION_TOKEN=" + secret, "GITHUB_TOKEN=" + secret, "GH_TOKEN=" + secret, "NPM_TOKEN=" + secret,
		"GOOGLE_APPLICATION_CREDENTIALS=" + filepath.Join(home, ".config/gcloud/application_default_credentials.json"),
		"KUBECONFIG=" + filepath.Join(home, ".kube/config"), "ANTHROPIC_API_KEY=" + secret, "OPENAI_API_KEY=" + secret,
		"PENSTOCK_SECRET_DEPLOY=" + secret, "PENSTOCK_CREDS=" + filepath.Join(home, ".netrc"),
	}
	// What is looked through is everything but the host's programs, and what
	// its processes show of themselves.
	script := `echo looking
echo ` + secret + ` >/tmp/word
grep -rslf /tmp/word /home /etc /tmp /run /var /root /workspace /opt /srv /mnt /media /jail ` + home + ` 2>/dev/null
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -v grep | sed 's/^/saw: /'
ls /proc/self/fd | sed 's/^/fd: /'
env | sed 's/^/env: /'
test -e ` + agent.Addr().String() + ` && echo the socket is there
true`
	f.must(os.WriteFile(filepath.Join(ws, "look"), []byte(script), 0o600)) // and nothing of it in a command line
	cmd := f.command("sandbox", "run", "--progress", "quiet", "--", "sh", "look")
	cmd.Dir = ws
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "looking\n/tmp/word\n/workspace/look\n") {
		t.Fatalf("nothing was looked through: %v\n%s%s", err, out, &told)
	}
	seen := strings.Replace(string(out), "/tmp/word\n/workspace/look\n", "", 1)
	for _, word := range []string{secret, "\n/", "socket", "SSH_AUTH_SOCK", "AWS", "TOKEN", "API_KEY", "CREDS", "SECRET", "DOCKER", "DBUS", home, "fd: 4"} {
		if strings.Contains(seen, word) {
			t.Errorf("%q is seen:\n%s", word, out)
		}
	}
	// Nothing of it is in the mechanism's own processes either, where other
	// users of the host would look.
	p := f.command("sandbox", "run", "--progress", "quiet", "--", "sh", "-c", "echo up; read x; true")
	p.Dir = ws
	stdin, err := p.StdinPipe()
	f.must(err)
	said := &syncBuffer{}
	p.Stdout = said
	f.must(p.Start())
	f.eventually(20*time.Second, "the jail is up", func() bool { return strings.Contains(said.String(), "up") })
	for _, pid := range children(p.Process.Pid) {
		for _, name := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(filepath.Join("/proc", pid, name)); err == nil && bytes.Contains(b, []byte(secret)) {
				t.Errorf("process %s shows a secret in its %s: %q", pid, name, b)
			}
		}
	}
	f.must(stdin.Close())
	f.must(p.Wait())
}

// children lists the processes below one.
func children(pid int) []string {
	var all []string
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range tasks {
		b, _ := os.ReadFile(file) // a thread that has gone has none
		for _, child := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(child)
			all = append(append(all, child), children(n)...)
		}
	}
	return all
}

// Ctrl-C asks the command to end, and the jail ends with it.
func TestSandboxRunInterrupted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	mark := "sleep 97531"
	cmd := f.command("sandbox", "run", "--", "sh", "-c", `trap "echo asked to end; exit 3" TERM; setsid `+mark+` & echo up; wait`)
	cmd.Dir = t.TempDir()
	said := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	f.must(cmd.Start())
	f.eventually(20*time.Second, "the command runs", func() bool { return strings.Contains(said.String(), "up") })
	inside := children(cmd.Process.Pid)
	f.must(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 || !strings.Contains(said.String(), "asked to end") {
		t.Errorf("got %v\n%s", err, said)
	}
	for _, pid := range inside {
		if b, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.Contains(strings.ReplaceAll(string(b), "\x00", " "), mark) {
			t.Errorf("process %s is still there: %q", pid, b)
		}
	}
}

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	n := 0
	conn, err := keyboard.SyscallConn() // Fd would make it one that no deadline interrupts
	if err != nil {
		t.Fatal(err)
	}
	used := conn.Control(func(fd uintptr) {
		err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		if err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(used, err); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}

// dialogue runs a command on a terminal and answers its questions in turn.
func (f *fixture) dialogue(dir string, answers []string, args ...string) (said string, cmd *exec.Cmd) {
	f.Helper()
	keyboard, terminal := openTerminal(f.T)
	cmd = f.command(args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	screen, hungUp := &syncBuffer{}, make(chan struct{})
	go func() { // ends when the terminal is closed
		defer close(hungUp)
		buf := make([]byte, 4096)
		for {
			n, err := keyboard.Read(buf)
			_, _ = screen.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	f.must(cmd.Start())
	f.must(terminal.Close())
	for i, answer := range answers {
		f.eventually(20*time.Second, "question "+strconv.Itoa(i+1), func() bool { return strings.Count(screen.String(), "[y/N]") > i })
		_, err := keyboard.WriteString(answer)
		f.must(err)
	}
	_ = cmd.Wait() // how it ended is in ProcessState
	<-hungUp
	return screen.String(), cmd
}

// Hosts and paths that are on no list are asked for, once each.
func TestAskOnTheTerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := exec.LookPath("curl"); err != nil {
		skip(t, "curl", "curl is not here: %v", err)
	}
	ws, extra, rules := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "policy.yaml")
	f.must(os.WriteFile(filepath.Join(extra, "f"), []byte("shown\n"), 0o644))
	f.must(os.WriteFile(rules, []byte("network: allowlist\nhosts: [registry.example]\n"), 0o644))
	run := []string{"sandbox", "run", "--ask", "--label", "asked", "--policy", rules, "--read", extra, "--"}
	script := `cat ` + extra + `/f; for h in a.invalid b.invalid a.invalid; do curl -s -m 60 http://$h/; done`
	said, cmd := f.dialogue(ws, []string{"y\n", "Yes\n", "\n"}, append(run, "sh", "-c", script)...)
	for _, words := range []string{
		"may the command read " + extra + "?", "may the command reach a.invalid:80?", "may the command reach b.invalid:80?", "\nshown",
		"a.invalid:80: the name cannot be resolved", "b.invalid:80 is not on the list of allowed hosts",
	} {
		if !strings.Contains(said, words) {
			t.Errorf("%q was not said:\n%s", words, said)
		}
	}
	if n := strings.Count(said, "[y/N]"); n != 3 || cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("%d questions, %v\n%s", n, cmd.ProcessState, said)
	}
	// A no to a path is the end of it, and what was typed before is no answer.
	said, cmd = f.dialogue(ws, []string{"n\n"}, append(run, "true")...)
	if cmd.ProcessState.ExitCode() != 6 || !strings.Contains(strings.Join(strings.Fields(said), " "), "read: "+extra+" is not permitted") {
		t.Errorf("%v\n%s", cmd.ProcessState, said)
	}
	kept := f.run("sandbox", "violations", "--label", "asked", "-o", "jsonl")
	if !strings.Contains(kept, `"what":"b.invalid:80"`) || !strings.Contains(kept, `"kind":"read","what":"`+extra) || strings.Contains(kept, "a.invalid") {
		t.Errorf("got\n%s", kept)
	}
}
