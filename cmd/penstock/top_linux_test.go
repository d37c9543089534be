package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
)

// A drawn screen is one that a command draws in this process until it ends.
type drawn struct {
	*fixture
	*screen
	told syncBuffer
	code chan int
}

func (f *fixture) draw(columns, rows uint16, args ...string) *drawn {
	f.Helper()
	d := &drawn{fixture: f, screen: newScreen(f, columns, rows), code: make(chan int, 1)}
	go func() { _, _ = io.Copy(&d.told, d.master) }() // ends with an error when the other side has gone
	none := func(string) string { return "" }
	a := &app{in: d.slave, out: console.New(d.slave, none), err: console.New(d.slave, none)}
	go func() { d.code <- run(f.Context(), a, append([]string{"--data", f.data}, args...)) }()
	return d
}

// shows waits until the screen is told a text, since a position.
func (d *drawn) shows(since int, text string) {
	d.fixture.Helper()
	d.eventually(30*time.Second, "the screen shows "+text, func() bool { return strings.Contains(d.told.String()[since:], text) })
}

func (d *drawn) types(keys string) (before int) {
	before = len(d.told.String())
	_, err := d.master.WriteString(keys)
	d.must(err)
	return before
}

// Top shows what runs without acting on what is in it, explains a job, pauses a queue once
// that is confirmed, says that the pool is away and comes back, and leaves the terminal as it
// was.
func TestTopOnAScreen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "1")
	id := f.submit(stays(600), strings.ToValidUTF8(evil, ""))
	f.eventually(60*time.Second, "the job runs", func() bool { return f.record(id).State == "executing" })
	d := f.draw(80, 24, "top", "--interval", "200ms")
	d.shows(0, "[Jobs 1]")
	d.shows(0, id[:18])
	d.shows(d.types("\r"), "is executing: worker")
	d.types("x") // back
	d.shows(d.types("\t"), "[Queues 1]")
	d.shows(d.types("p"), "pause queue default? y: yes")
	d.shows(d.types("n"), "nothing was changed")
	d.shows(d.types("p"), "y: yes")
	d.shows(d.types("y"), "queue default is paused")
	if out := f.run("queue", "ls"); !strings.Contains(out, "until it is resumed") {
		t.Errorf("the queue is not paused:\n%s", out)
	}
	before := len(d.told.String())
	serve.kill()
	d.shows(before, "does not answer")
	before = len(d.told.String())
	f.start("serving", args...)
	d.resize(40, 10)
	d.eventually(60*time.Second, "it comes back", func() bool {
		told := d.told.String()[before:]
		at := strings.LastIndex(told, "does not answer")
		return strings.Contains(told[max(at, 0):], "running")
	})
	d.types("\x03")
	if code := <-d.code; code != 130 {
		t.Errorf("ctrl-C ends it with %d", code)
	}
	f.eventually(20*time.Second, "the screen is left", func() bool { return strings.Contains(d.told.String(), "\x1b[?1049l") })
	for _, bad := range []string{"\x1b]0;title", "\u009b", "\x9b\x08", "\nFORGED", "\rFORGED", "\u202e"} {
		if strings.Contains(d.told.String(), bad) {
			t.Errorf("the terminal is told %q", bad)
		}
	}
	f.must(d.slave.Close())
}

// Where standard output is no terminal, top prints one snapshot.
func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	f.submit("true", "--queue", "nightly") // which no worker serves
	if out := f.run("top"); !strings.Contains(out, "1 pending") || !strings.Contains(out, "nightly") || strings.Contains(out, "\x1b") {
		t.Errorf("for people: %s", out)
	}
	var s struct {
		Stats                   struct{ Pending, Queues int }
		Running, Stuck, Workers []json.RawMessage
	}
	f.must(json.Unmarshal([]byte(f.run("top", "-o", "json")), &s))
	if s.Stats.Pending != 1 || s.Stats.Queues != 1 || len(s.Workers) != 1 || s.Running == nil || s.Stuck == nil {
		t.Errorf("for programs: %+v", s)
	}
	if _, code, said := f.try("top", "--interval", "0s"); code != 2 || !strings.Contains(said, "--interval") {
		t.Errorf("%d %s", code, said)
	}
}
