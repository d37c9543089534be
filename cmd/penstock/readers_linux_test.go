package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A streamReader follows a session by HTTP, and keeps no more of it than the last number.
type streamReader struct {
	url, token string
	last       int
	cut        int           // connections that it has ended
	lost       int           // connections that serve has ended, or has not taken
	part       int           // of the session's events, between two kills
	reached    chan struct{} // takes a value for each part that it has read
}

// follow reads up to n events of one connection, and reports whether the stream has ended.
// Each event must be the next one.
func (r *streamReader) follow(ctx context.Context, n int) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Accept", "text/event-stream")
	if r.last > 0 {
		req.Header.Set("Last-Event-ID", strconv.Itoa(r.last))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.lost++
		return false, nil // serve is not there
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusNoContent:
		return true, nil
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		r.lost++
		return false, nil
	default:
		return false, fmt.Errorf("behind event %d serve answers %s", r.last, res.Status)
	}
	for lines := bufio.NewScanner(res.Body); n > 0 && lines.Scan(); {
		if lines.Text() == "event: end" {
			return true, nil
		}
		id, ok := strings.CutPrefix(lines.Text(), "id: ")
		if !ok {
			continue
		}
		if id != strconv.Itoa(r.last+1) {
			return false, fmt.Errorf("behind event %d comes %s", r.last, id)
		}
		if r.last++; r.last%r.part == 0 {
			r.reached <- struct{}{}
		}
		n--
	}
	if n == 0 {
		r.cut++
	} else {
		r.lost++
	}
	return false, nil
}

// all follows the session of so many events to its end, over cuts at places that differ from
// reader to reader. A reader that has lost serve waits, as a browser does.
func (r *streamReader) all(ctx context.Context, random *rand.Rand, events, cuts int) error {
	for ctx.Err() == nil {
		n := events + 10
		if r.cut < cuts {
			n = 1 + random.IntN(2*events/(cuts+1))
		}
		lost := r.lost
		if ended, err := r.follow(ctx, n); ended || err != nil {
			return err
		}
		if r.lost > lost {
			time.Sleep(100*time.Millisecond + time.Duration(random.IntN(int(time.Second))))
		}
	}
	return ctx.Err()
}

// Each of many readers of one session gets each event once and in order, however often its
// connection is cut, and however often serve is killed. PENSTOCK_TEST_STREAM_EVENTS says how
// many events there are, and _READERS, _CUTS and _KILLS how many readers, how often each of
// them is cut, and how often serve is killed.
func TestManyReadersOfOneSession(t *testing.T) {
	t.Parallel()
	events, readers := size("PENSTOCK_TEST_STREAM_EVENTS", 150), size("PENSTOCK_TEST_STREAM_READERS", 200)
	cuts, kills := size("PENSTOCK_TEST_STREAM_CUTS", 1), size("PENSTOCK_TEST_STREAM_KILLS", 1)
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_LEASE=10m") // of a job whose worker is the test
	address := freeAddress(t)
	p, args := f.serve("--slots", "0", "--http", address)
	job := f.writing()
	limit := slowtest.Limit(time.Minute + time.Duration(events*readers/5000)*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	part := events / (kills + 1)
	reached := make(chan struct{}, readers*(kills+3))
	var cut, lost atomic.Int64
	token := f.httpToken()
	for i := range readers {
		g.Go(func() error {
			r := streamReader{url: "http://" + address + "/v1/jobs/" + job.id + "/events", token: token, part: part, reached: reached}
			err := r.all(ctx, rand.New(rand.NewPCG(1, uint64(i))), events, cuts)
			cut.Add(int64(r.cut))
			lost.Add(int64(r.lost))
			if want := part*(kills+1) + 3; err == nil && r.last != want { // submitted, claimed, finished
				err = fmt.Errorf("the stream has ended behind event %d of %d", r.last, want)
			}
			return err
		})
	}
	var used usage
	for n := range kills + 1 {
		job.say(ctx, part)
		for range readers / 2 { // the others are in the middle
			select {
			case <-reached:
			case <-ctx.Done():
			}
		}
		if n < kills {
			used.add(f, p)
			p.kill()
			p = f.start("serving", args...)
		}
	}
	job.finish()
	stored := time.Now()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	used.add(f, p)
	t.Logf("%d events, %d readers, %d connections cut by readers and %d lost by %d kills: %v, of which %v behind the last event; serve used %v of the processor and at most %d MiB",
		events, readers, cut.Load(), lost.Load(), kills, time.Since(began).Round(time.Millisecond), time.Since(stored).Round(time.Millisecond), used.processor, used.peak>>10)
}

// A usage is what processes have used.
type usage struct {
	processor time.Duration
	peak      int // of memory, in KiB
}

func (u *usage) add(f *fixture, p *program) {
	f.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	f.must(err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	f.must(err)
	u.peak = max(u.peak, kib)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	f.must(err)
	_, after, _ = strings.Cut(string(stat), ") ")
	for _, ticks := range strings.Fields(after)[11:13] { // of user and system, 100 a second
		n, err := strconv.Atoi(ticks)
		f.must(err)
		u.processor += time.Duration(n) * 10 * time.Millisecond
	}
}

// A writing is a job whose worker is the test.
type writing struct {
	*fixture
	*session.Writer
	finish func()
	id     string
}

// writing submits a job and begins its session.
func (f *fixture) writing() writing {
	f.Helper()
	nc := f.lastingBus()
	c, err := client.Open(f.Context(), nc, client.Config{By: "test"})
	f.must(err)
	made, err := c.Submit(f.Context(), jobs.Job{Agent: jobs.Agent{Name: "command", Command: []string{"true"}}, Isolation: jobs.IsolationNone})
	f.must(err)
	q, log, store := jobstest.Queue(f, nc, queue.Config{Lease: 10 * time.Minute}), jobstest.Log(f, nc), jobstest.Store(f, nc)
	claim := jobstest.Claim(f, q, "w")
	rec := claim.Record()
	w, err := log.Writer(f.Context(), session.Source{Job: rec.ID, Session: rec.Session, Attempt: rec.Attempt, Epoch: claim.Epoch()},
		event.New(event.JobClaimed{Worker: rec.Worker, Epoch: claim.Epoch()}))
	f.must(err)
	return writing{f, w, func() {
		f.Helper()
		_, err := claim.Settle(jobstest.Context(f), jobs.Ended{Outcome: jobs.Success}, log.Finisher(store.Result))
		f.must(err)
	}, made.ID}
}

// say appends so many messages of the agent.
func (w writing) say(ctx context.Context, n int) {
	w.Helper()
	lines := slices.Repeat([]jobs.Event{event.New(event.Message{Role: "assistant", Text: "line"})}, n)
	for some := range slices.Chunk(lines, 500) {
		w.must(w.Append(ctx, some...))
	}
}
