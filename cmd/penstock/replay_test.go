package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
)

// A watcher that is killed again and again, and begins where it stopped, has
// seen every event once, also when the server is killed meanwhile. What it
// needs of memory does not grow with what it has seen. PENSTOCK_TEST_EVENTS
// says how many lines there are; from 100,000 on there are a hundred
// kills and three of the server. They are told as a worker tells them, but by this
// test: a worker does not keep so much of what one attempt says.
func TestAKilledWatcherMissesNothing(t *testing.T) {
	t.Parallel()
	lines, kills, restarts := 10_000, 15, 1
	if asked, err := strconv.Atoi(os.Getenv("PENSTOCK_TEST_EVENTS")); err == nil {
		lines = asked
	}
	if lines >= 100_000 {
		kills, restarts = 100, 3
	}
	f := newFixture(t)
	serve, args := f.serve()
	began := time.Now()
	id := f.submit("true") // there is no worker: this test tells what one would
	told := make(chan error, 1)
	go func() { told <- narrate(f, id, lines) }()
	r := &replay{fixture: f, id: id}
	for n := range kills {
		// So many that the kills are spread over the whole session.
		r.watch(1 + rand.IntN(2*lines/(kills+1)))
		if (n+1)%(kills/(restarts+1)) == 0 && restarts > 0 {
			restarts--
			killed := time.Now()
			serve.kill()
			serve = f.start("serving", args...)
			t.Logf("at event %d the server was away for %v", r.seen, time.Since(killed).Round(time.Millisecond))
		}
	}
	r.rest(lines)
	f.must(<-told)
	t.Logf("%d events under %d kills in %v", r.seen, kills, time.Since(began).Round(time.Second))

	// Once more in one go, as for a late client.
	began = time.Now()
	all := &replay{fixture: f, id: id, every: max(1, r.seen/100)}
	all.rest(lines)
	if all.seen != r.seen {
		t.Errorf("saw %d events, and %d in one go", r.seen, all.seen)
	}
	took := time.Since(began)
	early, late := all.memory(1, 20), all.memory(80, 100)
	t.Logf("%d events in one go in %v, %.0f a second; resident memory: at most %d KiB in the first fifth, %d KiB in the last",
		all.seen, took.Round(time.Millisecond), float64(all.seen)/took.Seconds(), early, late)
	// It never holds more than what it was sent at once.
	if most := early + early/4 + 16<<10; late > most {
		t.Errorf("the watcher has grown to %d KiB, want at most %d", late, most)
	}
}

// narrate writes lines to a job's session, and then its end.
func narrate(f *fixture, id string, lines int) error {
	a := &app{out: console.New(io.Discard, os.Getenv), err: console.New(io.Discard, os.Getenv), cfg: cli.Defaults()}
	a.cfg.Data = f.data
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	p, err := pool.Open(ctx, a.shell(), "read", pool.Hooks{})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // it only reads the pool's store
	w, err := p.Log.Writer(ctx, session.Source{Job: id, Session: id, Attempt: 1, Epoch: 1}, event.New(event.JobClaimed{}))
	if err != nil {
		return err
	}
	const batch = 250
	for n := 0; n < lines; n += batch {
		var events []jobs.Event
		for i := n; i < min(n+batch, lines); i++ {
			events = append(events, event.New(event.OutputLine{Stream: "stdout", Text: "line " + strconv.Itoa(i+1)}))
		}
		if err := w.Append(ctx, events...); err != nil {
			return err
		}
	}
	rec, err := p.Queue.Get(ctx, id)
	if err != nil {
		return err
	}
	rec.Attempt, rec.Epoch, rec.State, rec.Outcome, rec.Finished = 1, 1, jobs.Finished, jobs.Success, new(time.Now())
	return p.Log.Finish(ctx, rec, rec.Result())
}

// A replay is a session as its watchers have seen it, one after the other.
type replay struct {
	*fixture
	id    string
	seen  int
	lines int
	last  jobs.Event
	every int   // look at the watcher's memory after so many events
	rss   []int // KiB
}

// watch starts a watcher where the last one stopped, and kills it after so
// many events; zero lets it end by itself.
func (r *replay) watch(most int) {
	r.Helper()
	cmd := r.command("watch", r.id, "-o", "jsonl", "--since", strconv.Itoa(r.seen+1))
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(cmd.Start())
	limit := time.AfterFunc(30*time.Minute, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	in := bufio.NewReaderSize(out, 1<<16)
	killed := false
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil { // a kill may cut the last line in two
			if !errors.Is(err, io.EOF) {
				r.Fatal(err)
			}
			break
		}
		r.see(line)
		if r.every > 0 && n%r.every == 0 {
			r.rss = append(r.rss, resident(cmd.Process.Pid))
		}
		// What it has written until it is dead was seen, too.
		if !killed && most > 0 && n >= most {
			killed = true
			r.must(cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err != nil && !killed {
		r.Fatalf("watch after event %d: %v\n%s", r.seen, err, told.String())
	}
}

func (r *replay) see(line []byte) {
	r.Helper()
	r.last = jobs.Event{}
	r.must(json.Unmarshal(line, &r.last))
	if r.seen++; r.last.Seq != uint64(r.seen) {
		r.Fatalf("event %d has the number %d (%s)", r.seen, r.last.Seq, r.last.Kind)
	}
	if r.last.Kind == jobs.OutputLine {
		r.lines++
	}
}

// rest watches to the end, and wants all lines and the end itself.
func (r *replay) rest(lines int) {
	r.Helper()
	r.watch(0)
	if r.lines != lines || r.last.Kind != jobs.JobFinished {
		r.Errorf("saw %d lines and at last %s, want %d and %s", r.lines, r.last.Kind, lines, jobs.JobFinished)
	}
}

// memory is the most that was seen between two parts in a hundred.
func (r *replay) memory(from, to int) int {
	most := 0
	for i, kib := range r.rss {
		if at := 100 * (i + 1) / len(r.rss); at >= from && at <= to {
			most = max(most, kib)
		}
	}
	return most
}

// resident is how much memory a process has, in KiB; zero where the system
// does not tell.
func resident(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it may have ended
	_, rest, _ := bytes.Cut(text, []byte("VmRSS:"))
	var kib int
	_, _ = fmt.Sscan(string(rest), &kib)
	return kib
}
