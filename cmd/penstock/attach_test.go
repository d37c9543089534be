package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A room is a tmux server of one test, in which people sit.
type room struct {
	*fixture
	socket string
}

func newRoom(f *fixture) room {
	f.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		skip(f, "tmux", "there is no tmux: %v", err)
	}
	r := room{f, filepath.Join(f.TempDir(), "tmux")}
	f.Cleanup(func() { _ = r.tmux("kill-server").Run() }) // a test that failed may not have begun it
	return r
}

func (r room) tmux(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", r.socket, "-f", "/dev/null", "-u"}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	return cmd
}

func (r room) do(args ...string) string {
	r.Helper()
	out, err := r.tmux(args...).CombinedOutput()
	if err != nil {
		r.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// sits starts a user at a shell of the host, in a terminal of that size.
func (r room) sits(name string, width, height int) {
	r.Helper()
	cmd := r.fixture.command()
	args := []string{"new-session", "-d", "-s", name, "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	for _, kv := range cmd.Env {
		if strings.HasPrefix(kv, "PENSTOCK_") || strings.HasPrefix(kv, "TMPDIR=") {
			args = append(args, "-e", kv)
		}
	}
	r.do(append(args, "env", "PS1=host$ ", "sh")...)
	r.sees(name, `host\$`)
}

// program returns a path of the program that people can type.
func (r room) program() string {
	r.Helper()
	self, err := os.Executable()
	r.must(err)
	path := filepath.Join(r.TempDir(), "penstock")
	r.must(os.Symlink(self, path))
	return path
}

func (r room) types(name, text string) { r.Helper(); r.do("send-keys", "-t", name, text, "Enter") }

// sees waits until a person's screen has what the expression says.
func (r room) sees(name, expression string) {
	r.Helper()
	want, screen := regexp.MustCompile(expression), ""
	defer func() {
		if r.Failed() {
			r.Logf("%s sees:\n%s", name, screen)
		}
	}()
	r.eventually(30*time.Second, name+" sees "+expression, func() bool {
		screen = r.do("capture-pane", "-p", "-e", "-t", name)
		return want.MatchString(screen)
	})
}

// Two people look at one terminal in the jail, each at a terminal of its own.
func TestAttach(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newRoom(f)
	f.serve("--slots", "1")
	id := f.submit("echo begun; " + untilGoOn)
	f.runs(id)
	penstock := r.program()

	r.sits("ann", 90, 20)
	r.types("ann", penstock+" attach "+id+" -- bash --norc")
	r.sees("ann", `terminal 1 of job`)
	r.types("ann", "PS1='in>'; pwd; stty size; printf '\\033[31mr''ed\\033[0m\\n'")
	r.sees("ann", `(?s)/workspace\s+20 90\s.*\x1b\[31mred`)
	r.sits("bob", 70, 30)
	r.types("bob", penstock+" attach "+id+" --terminal 1")
	r.sees("bob", `red`) // what was shown before
	r.types("bob", "stty size; echo fr''om bob")
	r.sees("ann", `(?s)30 70\s+from bob`)
	r.do("resize-window", "-t", "ann", "-x", "100", "-y", "25")
	r.eventually(30*time.Second, "the terminal has the size of who changed it last", func() bool {
		return strings.Contains(f.run("attach", id, "--list", "-o", "json"), `"columns": 100`)
	})
	r.types("ann", `sh -c 'trap "exit 130" INT; echo sl""eeps; while :; do sleep 0.02; done'`)
	r.sees("ann", `(?m)^sleeps`)
	r.do("send-keys", "-t", "ann", "C-c")
	r.sees("ann", `(?s)\^C.*in>`)
	r.types("ann", "echo st''ill")
	r.sees("bob", "still")
	if list := f.run("attach", id, "--list"); !strings.Contains(list, "bash --norc") {
		t.Errorf("listed:\n%s", list)
	}

	r.do("send-keys", "-t", "bob", "C-]")
	r.sees("bob", `(?s)detached;.*host\$`)
	r.types("bob", "stty -a | tr ' ' '\\n' | grep -cx -e echo -e icanon -e isig") // his terminal is as it was
	r.sees("bob", `(?m)^3$`)
	r.types("bob", penstock+" attach "+id+" --terminal 1 --read-only")
	r.sees("bob", `(?s)host\$.*still`)
	r.do("send-keys", "-t", "bob", "nothing of this", "Enter")
	r.types("ann", "exit 7")
	r.sees("ann", `(?s)exit\s.*host\$`)
	r.types("ann", "echo it was $?")
	r.sees("ann", `it was 7`)
	r.sees("bob", `(?s)exit\s.*host\$`)

	f.attachedByPrograms(id)
	f.run("wait", "--timeout", patience(60), id)
	log := f.run("logs", "-o", "jsonl", id)
	if strings.Contains(log, "nothing of this") || !strings.Contains(log, "from bob") {
		t.Errorf("the log has:\n%s", log)
	}
	if events := f.decode(log); count(events, jobs.TerminalCreated) != 5 || count(events, jobs.TerminalExited) != 5 {
		t.Errorf("%d were opened, %d have ended", count(events, jobs.TerminalCreated), count(events, jobs.TerminalExited))
	}
	if files := f.run("job", "artifacts", id); !strings.Contains(files, "terminal-1.cast") {
		t.Errorf("artifacts:\n%s", files)
	}
}

// attachedByPrograms attaches without a terminal, and ends the job's agent.
func (f *fixture) attachedByPrograms(id string, flags ...string) {
	f.Helper()
	piped := func(text string, args ...string) (string, int) {
		cmd := f.command(after(append([]string{"attach", id}, args...), flags)...)
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if err != nil && !ok {
			f.Fatal(err)
		}
		if ok {
			return string(out), exit.ExitCode()
		}
		return string(out), 0
	}
	if out, code := piped("echo pi''ped\nexit 5\n", "--", "sh"); code != 5 || !strings.Contains(out, "piped") {
		f.Errorf("through a pipe: %d, %s", code, out)
	}
	if out, code := piped("", "--", "cat"); code != 0 {
		f.Errorf("the end of the input: %d, %s", code, out)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{6, "no terminal 9", []string{"--terminal", "9"}}, {6, "no such file", []string{"--", "no-such-program"}},
		{2, "--terminal", []string{"--read-only"}}, {2, "already runs", []string{"--terminal", "1", "--", "sh"}},
	} {
		if out, code := piped("", c.args...); code != c.code || !strings.Contains(out, c.says) {
			f.Errorf("%v: %d, %s", c.args, code, out)
		}
	}
	if out, code := piped("touch go-on; sleep 1000\n", "--", "sh"); code != 9 {
		f.Errorf("the agent's end: %d, %s", code, out)
	}
	f.run("wait", "--timeout", patience(60), id) // until then it may have a terminal yet
	if _, code := piped(""); code != 6 {
		f.Errorf("after the agent's end: %d", code)
	}
}

// Only an operator may attach to the jails of a worker with a credential.
func TestRolesOfAttach(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	web := "http://" + f.serveHTTP()
	as := f.credentials()
	f.worker(flagged(as[jobs.RoleWorker], []string{"--slots", "1"})...)
	id := f.submit("echo begun; " + untilGoOn)
	f.runs(id)
	for _, role := range []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter, jobs.RoleWorker} {
		attach := []string{"attach", id, "--timeout", patience(20), "--", "true"}
		if out, code, told := f.try(flagged(as[role], attach)...); code != 6 || !strings.Contains(told, "operator") {
			t.Errorf("role %s: %d, %s%s", role, code, out, told)
		}
	}
	for _, role := range []jobs.Role{jobs.RoleViewer, jobs.RoleSubmitter} {
		attach := after([]string{"attach", id, "--timeout", patience(20), "--", "true"}, f.overHTTP(web, role))
		if out, code, told := f.try(attach...); code != 6 || !strings.Contains(told, "operator") {
			t.Errorf("role %s over HTTP: %d, %s%s", role, code, out, told)
		}
	}
	f.goOn(id, as[jobs.RoleOperator]...)
	f.run("wait", "--timeout", patience(60), id)
}

// Over HTTP a terminal is the same: two people look at it, one by HTTP and one on the bus.
// It outlives a server that is killed, with all that was typed meanwhile.
func TestAttachOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newRoom(f)
	address := freeAddress(f)
	serve, args := f.serve("--http", address)
	web := f.overHTTP("http://"+address, jobs.RoleOperator)
	f.worker("--slots", "1")
	id := f.submit("echo begun; " + untilGoOn)
	f.runs(id)
	penstock, flags := r.program(), " "+strings.Join(web, " ")

	r.sits("ann", 90, 20)
	r.types("ann", penstock+" attach "+id+flags+" -- bash --norc")
	r.sees("ann", `terminal 1 of job`)
	r.types("ann", "clear; PS1='in>'; pwd; stty size; printf '\\033[31mr''ed\\033[0m\\n'")
	r.sees("ann", `(?s)/workspace\s+20 90\s.*\x1b\[31mred`)
	r.sits("bob", 70, 30)
	r.types("bob", penstock+" attach "+id+" --terminal 1")
	r.sees("bob", `red`)
	r.types("bob", "stty size; echo fr''om bob")
	r.sees("ann", `(?s)30 70\s+from bob`)
	r.do("resize-window", "-t", "ann", "-x", "100", "-y", "25")
	r.eventually(30*time.Second, "the terminal has the size of who changed it last", func() bool {
		return strings.Contains(f.run(after([]string{"attach", id, "--list", "-o", "json"}, web)...), `"columns": 100`)
	})
	r.do("send-keys", "-t", "bob", "C-]")
	r.sees("bob", `(?s)detached;.*host\$`)

	serve.kill()
	r.sees("ann", `trying again`)
	r.types("ann", "echo typed mean''while >>typed; cat typed")
	f.start("serving", args...)
	r.sees("ann", `(?m)^typed meanwhile`)
	if n := strings.Count(r.do("capture-pane", "-p", "-t", "ann"), "\ntyped meanwhile"); n != 1 {
		t.Errorf("it was typed %d times", n)
	}

	r.do("send-keys", "-t", "ann", "C-]")
	r.sees("ann", `(?s)detached;.*host\$`)
	r.types("ann", "stty -a | tr ' ' '\\n' | grep -cx -e echo -e icanon -e isig")
	r.sees("ann", `(?m)^3$`)
	r.types("ann", "clear; "+penstock+" attach "+id+flags+" --terminal 1 --read-only")
	r.sees("ann", `typed meanwhile`)
	r.do("send-keys", "-t", "ann", "nothing of this", "Enter")
	r.types("bob", "clear; "+penstock+" attach "+id+flags+" --terminal 1")
	r.sees("bob", `typed meanwhile`)
	r.types("bob", "exit 7")
	r.sees("bob", `(?s)exit\s.*host\$`)
	r.types("bob", "echo it was $?")
	r.sees("bob", `it was 7`)
	r.sees("ann", `(?s)exit\s.*host\$`)
	f.attachedByPrograms(id, web...)
	f.run("wait", "--timeout", patience(60), id)
	log := f.run("logs", "-o", "jsonl", id)
	if strings.Contains(log, "nothing of this") || !strings.Contains(log, `"by":"over-operator"`) {
		t.Errorf("the log has:\n%s", log)
	}
	if entries := f.run("audit", "--operation", "attach", "-o", "jsonl"); !strings.Contains(entries, id) || !strings.Contains(entries, "over-operator") {
		t.Errorf("the audit log has:\n%s", entries)
	}
}
