package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/dashboard/browsertest"
	"github.com/penstock-run/penstock/dispatcher/dashboard/transcript"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A browsing is a program of testdata that uses pages as a person does. It prints a line
// for each step, and waits for the next one where the test has something to do.
type browsing struct {
	*fixture
	in    io.WriteCloser
	lines *bufio.Scanner
}

func (f *fixture) browse(script string, task map[string]any) *browsing {
	f.Helper()
	node, chromium := browsertest.Programs(f, browsertest.Puppeteer)
	text, err := browsertest.Task(chromium, task)
	f.must(err)
	cmd := exec.Command(node, script, string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	f.must(err)
	out, err := cmd.StdoutPipe()
	f.must(err)
	f.must(cmd.Start())
	limit := time.AfterFunc(slowtest.Limit(3*time.Minute), func() { _ = cmd.Process.Kill() }) // it may have ended
	f.Cleanup(func() {
		limit.Stop()
		_ = in.Close() // it may have ended; else this ends it
		if err := cmd.Wait(); err != nil {
			f.Errorf("the browser: %v", err)
		}
	})
	b := &browsing{fixture: f, in: in, lines: bufio.NewScanner(out)}
	b.lines.Buffer(nil, 1<<20)
	return b
}

// until waits for a step, and returns what it says.
func (b *browsing) until(step string) string {
	b.Helper()
	for b.lines.Scan() {
		name, said, _ := strings.Cut(b.lines.Text(), " ")
		if name == step {
			return said
		}
		b.Errorf("the browser says %s", b.lines.Text())
	}
	b.Fatalf("the browser has ended before %s", step)
	return ""
}

func (b *browsing) goOn() {
	b.Helper()
	_, err := io.WriteString(b.in, "go on\n")
	b.must(err)
}

// submitToBatch submits a job of a batch, with a shell command as its agent.
func (f *fixture) submitToBatch(script string) string {
	f.Helper()
	job, err := json.Marshal(map[string]any{
		"prompt": "as the command says", "batch": "browser", "repo": map[string]any{"url": f.repo}, "retry": map[string]any{"max_attempts": 1},
		"agent": map[string]any{"command": []string{"sh", "-c", script}},
	})
	f.must(err)
	file := filepath.Join(f.TempDir(), "job.json")
	f.must(os.WriteFile(file, job, 0o600))
	return strings.TrimSpace(f.run("submit", "-o", "id", "--job", file))
}

// shownOnPages are the numbers of the events that a page shows, in their order.
func shownOnPages(events []jobs.Event) []uint64 {
	var numbers []uint64
	for _, e := range events {
		if e.Kind == jobs.InputState && event.As[event.InputState](e).State != control.Accepted {
			continue // the way of a message through the agent
		}
		if transcript.Shown(e.Kind) {
			numbers = append(numbers, e.Seq)
		}
	}
	return numbers
}

// A person watches a session to its end in a browser, while the pool dies and comes back,
// answers its question by a click, and runs a failed job again by another. The page has
// each event of the log once.
func TestASessionInTheBrowser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	browsertest.Programs(t, browsertest.Puppeteer)
	address := freeAddress(f)
	serve, args := f.serve("--http", address)
	f.worker("--slots", "2")
	const asks = `for i in $(seq 80); do echo "line $i"; sleep 0.03; done; penstock ask "Which <b>color</b>?" --option Red --option Blue >answer; echo "chosen $(cat answer)"; cat answer >>README.md`
	job, failing := f.submitToBatch(asks), f.submitToBatch(`echo "attempt $PENSTOCK_ATTEMPT"; [ "$PENSTOCK_ATTEMPT" != 1 ]`)
	f.submitToBatch("echo quick")

	b := f.browse("testdata/watch.cjs", map[string]any{"url": "http://" + address, "token": f.httpToken(), "job": job, "failing": failing})
	b.until("following")
	serve.kill()
	b.until("away")
	f.start("serving", args...)
	b.goOn()
	b.until("answered")
	var got []uint64
	f.must(json.Unmarshal([]byte(b.until("events")), &got))
	events := f.events(job)
	if want := shownOnPages(events); !slices.Equal(got, want) {
		t.Errorf("the page has the events\n%v\nwant\n%v", got, want)
	}
	f.gapless(events)
	if rec := f.record(job); rec.Outcome != jobs.Success {
		t.Errorf("the job ended as %s: %s", rec.Outcome, rec.Message)
	}
	b.until("retried")
	if rec := f.record(failing); rec.Outcome != jobs.Success || rec.Attempt != 2 {
		t.Errorf("the job that was retried: %s in attempt %d: %s", rec.Outcome, rec.Attempt, rec.Message)
	}
	b.until("done")
}
