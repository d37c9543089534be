package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// resize makes the terminal another size.
func (s *screen) resize(columns, rows uint16) {
	s.Helper()
	if err := unix.IoctlSetWinsize(int(s.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		s.Fatal(err)
	}
}

var drawing = regexp.MustCompile("\x1b\\[\\??[0-9]*[ABJKhl]|\r")

// widest is how many columns the widest of the rows has that were drawn.
func widest(told string) int {
	most := 0
	for line := range strings.SplitSeq(drawing.ReplaceAllString(ours.ReplaceAllString(told, ""), "\n"), "\n") {
		most = max(most, console.Columns(line))
	}
	return most
}

// A batch at a terminal names the items that run and what they do, fits the
// terminal when that changes its size, and leaves nothing but how each item and
// the batch ended, and what to type next.
func TestBatchOnAScreen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	items := filepath.Join(t.TempDir(), "items.jsonl")
	f.must(os.WriteFile(items, []byte(`{"item":"good","prompt":"0"}`+"\n"+`{"item":"bad","prompt":"3"}`+"\n"), 0o644))
	const agent = `echo y >new; penstock ask "Shall I go on, with all of what was asked of me, or is there more to say about it before I do?"; exit $(cat "$PENSTOCK_PROMPT_FILE")`
	s := newScreen(t, 120, 30)
	var told syncBuffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&told, s.master) // ends with an error when the other side has gone
	}()
	code := make(chan int, 1)
	out := filepath.Join(t.TempDir(), "out")
	a := &app{in: s.slave, out: console.New(s.slave, os.Getenv), err: console.New(s.slave, os.Getenv)}
	go func() {
		code <- run(t.Context(), a, []string{"--data", f.data, "batch", "run", items, "--out", out, "--repo", f.repo, "--max-attempts", "1", "--", "sh", "-c", agent})
	}()
	asks := regexp.MustCompile(`● (?:\x1b\[0m)?(good|bad)[^\r\n]*waits for an answer: Shall I go on`)
	f.eventually(30*time.Second, "both items are shown to wait", func() bool {
		seen := map[string]bool{}
		for _, m := range asks.FindAllStringSubmatch(told.String(), -1) {
			seen[m[1]] = true
		}
		return len(seen) == 2
	})
	before := len(told.String())
	s.resize(40, 10)
	f.eventually(20*time.Second, "the screen is drawn anew", func() bool { return strings.Count(told.String()[before:], "\x1b[?7h") > 3 })
	// What was under way when the size changed is as wide as that was before.
	_, after, _ := strings.Cut(told.String()[before:], "\x1b[?7h")
	if n := widest(after); n >= 40 || n < 30 {
		t.Errorf("on 40 columns the widest row has %d:\n%q", n, after)
	}
	for id := range strings.Lines(f.run("job", "ls", "-o", "id")) {
		f.run("answer", strings.TrimSpace(id), "--text", "yes")
	}
	if got := <-code; got != cli.ExitFailure {
		t.Errorf("exit code %d", got)
	}
	f.must(s.slave.Close())
	<-read
	all := strings.ReplaceAll(told.String(), "\r\n", "\n")
	at := strings.LastIndex(all, "\r\x1b[K\n\x1b[J\x1b[A")
	if at < 0 {
		t.Fatalf("the screen was not cleared: %q", all)
	}
	end := ours.ReplaceAllString(all[at:], "")
	for _, want := range []string{"2 of 2", "1 success, 1 failure", "penstock batch report ", "penstock job diff ", "penstock why ", "penstock logs "} {
		if !strings.Contains(strings.Join(strings.Fields(end), " "), want) {
			t.Errorf("the end does not say %q:\n%s", want, end)
		}
	}
	if strings.Count(end, "failure") != 1 || strings.Contains(end, "hint:") {
		t.Errorf("it is told more than once how the batch ended:\n%s", end)
	}
	for _, want := range []string{"✓ good  success in ", "✗ bad   failure (agent_failed) in "} {
		if n := strings.Count(ours.ReplaceAllString(all, ""), want); n != 1 {
			t.Errorf("%q is told %d times:\n%q", want, n, all)
		}
	}
}

// After a resize while a batch runs, nothing of its screen is left above the next one,
// nor in the history.
func TestABatchIsResized(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newRoom(f)
	f.serve("--slots", "4")
	dir := t.TempDir()
	items, question := "", strings.Repeat("Shall I go on? ", 15)
	for i := range 4 {
		items += fmt.Sprintf(`{"item":"item%d","prompt":"p"}`+"\n", i)
	}
	f.must(os.WriteFile(filepath.Join(dir, "items.jsonl"), []byte(items), 0o644))
	script := fmt.Sprintf("%s batch run %s/items.jsonl --out %s/out --repo %s -- sh -c 'penstock ask \"%s\"'\n", r.program(), dir, dir, f.repo, question)
	f.must(os.WriteFile(filepath.Join(dir, "batch"), []byte(script), 0o644))
	r.sits("ann", 160, 40)
	r.types("ann", "clear; sh "+dir+"/batch")
	r.sees("ann", `(?s)(●\S* \S*item\d.*waits for an answer.*){4}0/4`)
	for _, size := range []string{"80x40", "120x12", "80x30"} {
		columns, rows, _ := strings.Cut(size, "x")
		r.do("resize-window", "-t", "ann", "-x", columns, "-y", rows)
		bar := regexp.MustCompile(`0/4 .*`)
		before := bar.FindString(r.do("capture-pane", "-p", "-t", "ann"))
		r.eventually(jobstest.Patience, "the time goes on", func() bool {
			return bar.FindString(r.do("capture-pane", "-p", "-t", "ann")) != before
		})
	}
	for id := range strings.Lines(f.run("job", "ls", "-o", "id")) {
		f.run("answer", strings.TrimSpace(id), "--text", "yes")
	}
	r.sees("ann", `(?s)penstock batch report.*host\$`)
	shown := r.do("capture-pane", "-p", "-S", "-", "-t", "ann")
	if strings.Contains(shown, "●") || strings.Contains(shown, "Shall I") || strings.Contains(shown, "0/4") {
		t.Errorf("rows of the screen stay:\n%s", shown)
	}
	for i := range 4 {
		if n := strings.Count(shown, fmt.Sprintf("✓ item%d", i)); n != 1 {
			t.Errorf("item%d is told %d times:\n%s", i, n, shown)
		}
	}
}
