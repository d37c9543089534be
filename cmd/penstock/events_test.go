package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A tail is a penstock events tail that runs.
type tail struct {
	*fixture
	cmd       *exec.Cmd
	out, said syncBuffer
}

func (f *fixture) tail(args ...string) *tail {
	f.Helper()
	t := &tail{fixture: f, cmd: f.command(append([]string{"events", "tail", "-o", "json"}, args...)...)}
	t.cmd.Stdout, t.cmd.Stderr = &t.out, &t.said
	f.must(t.cmd.Start())
	f.Cleanup(func() { _ = t.cmd.Process.Kill(); _ = t.cmd.Wait() })
	f.eventually(20*time.Second, "the stream begins: "+t.said.String(), func() bool { return strings.Contains(t.out.String(), `"reset"`) })
	return t
}

// told has a line for each change, as its kind, its state and its outcome, and the place of
// the last one.
func (t *tail) told() (lines []string, last string) {
	t.Helper()
	for text := range strings.Lines(t.out.String()) {
		var l struct{ Place, Kind, ID, Name, State, Outcome, Operation string }
		if !strings.HasSuffix(text, "\n") {
			break
		}
		t.must(json.Unmarshal([]byte(text), &l))
		lines, last = append(lines, strings.Join(strings.Fields(strings.Join([]string{l.Kind, l.ID, l.Name, l.State, l.Outcome, l.Operation}, " ")), " ")), l.Place
	}
	return lines, last
}

func (t *tail) wants(line string) {
	t.Helper()
	t.eventually(30*time.Second, line+" is told", func() bool { return strings.Contains(t.out.String(), `"reset"`) && t.has(line) })
}

func (t *tail) has(line string) bool {
	lines, _ := t.told()
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	if n > 1 {
		t.Errorf("told %d times: %s", n, line)
	}
	return n == 1
}

// Whoever follows a pool is told each change that was asked for and no other, on the bus and
// over HTTP, also over a kill of the pool, once; and goes on from any place.
func TestEventsTail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := freeAddress(f)
	serve, args := f.serve("--http", address, "--slots", "1")
	web := f.overHTTP("http://"+address, jobs.RoleViewer)
	tails := map[string]*tail{"on the bus": f.tail("--queue", "default"), "over HTTP": f.tail(append(web, "--queue", "default")...)}
	one := f.submit("true")
	other := f.submit("true", "--queue", "later")
	f.run("wait", "--timeout", patience(60), one)
	f.run("queue", "pause", "default")
	serve.kill()
	f.start("serving", args...)
	f.run("queue", "resume", "default")
	two := f.submit("true")
	f.run("wait", "--timeout", patience(60), two)
	for way, tail := range tails {
		for _, line := range []string{"job " + one + " finished success", "queue default queue-pause", "queue default queue-resume", "job " + two + " finished success"} {
			tail.wants(line)
		}
		lines, _ := tail.told()
		if text := strings.Join(lines, "\n"); strings.Contains(text, other) || strings.Count(text, "reset") != 1 {
			t.Errorf("%s is told\n%s", way, text)
		}
	}
	if said := tails["over HTTP"].said.String(); !strings.Contains(said, "does not answer") || !strings.Contains(said, "answers again") {
		t.Errorf("of the kill is said %q", said)
	}

	_, last := tails["on the bus"].told()
	three := f.submit("true")
	f.run("wait", "--timeout", patience(60), three)
	if out := f.run(after([]string{"events", "tail", "--from", last, "--kind", "job", "--outcome", "success", "--limit", "1", "-o", "id"}, web)...); out != three+"\n" {
		t.Errorf("behind a place comes %q, want %s", out, three)
	}
	if out := f.run("events", "tail", "--from", last, "--kind", "job", "--outcome", "success", "--limit", "1"); !strings.Contains(out, three) {
		t.Errorf("for people: %s", out)
	}
}

// Who may not follow a pool on the bus is told who may.
func TestEventsTailIsForOperators(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	out, code, said := f.try(append([]string{"events", "tail", "--limit", "1"}, f.credentials()[jobs.RoleViewer]...)...)
	if code != 6 || out != "" || !strings.Contains(said, "not allowed: role viewer") || !strings.Contains(said, "hint: ") {
		t.Errorf("%d %s%s", code, out, said)
	}
}
