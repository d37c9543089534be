package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/receipt"
	"github.com/penstock-run/penstock/jobs/session"
)

// A follower that is killed and started again twenty times, while the server
// restarts and a second session fills the same stream, sees every event of
// its session once and in order.
func TestFollowSeesEachEventOnce(t *testing.T) {
	const events, restarts = 10_000, 20
	s := jobstest.Start(t)
	l, watching := jobstest.Log(t, s.Connect()), jobstest.Log(t, s.Connect())
	id, noise := jobs.NewID(), jobs.NewID()
	w, other := writer(t, l, source(id, 1)), writer(t, l, source(noise, 1))
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for n := 1; n < events; { // the claim is the first
			k := min(1+rand.IntN(150), events-n)
			if err := w.Append(jobstest.Context(t), lines(k)...); err != nil {
				t.Error(err)
				return
			}
			if err := other.Append(jobstest.Context(t), line("noise")); err != nil {
				t.Error(err)
				return
			}
			n += k
		}
	})
	var next uint64 = 1
	for leg := range restarts + 1 {
		if next > events {
			break // nothing more will come
		}
		until := uint64(events)
		if leg < restarts {
			until = min(events, next+uint64(rand.IntN(2*events/restarts)))
		}
		if leg == restarts/3 {
			writing.Go(s.Restart)
		}
		for e, err := range watching.Follow(jobstest.Context(t), id, next, session.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq != next || e.Session != id {
				t.Fatalf("leg %d: event %d of %s, want %d of %s", leg, e.Seq, e.Session, next, id)
			}
			if next++; e.Seq >= until {
				break
			}
		}
	}
	if next != events+1 {
		t.Errorf("next is %d, want %d", next, events+1)
	}
}

func TestFollowEndsWithTheJob(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	first := finishedRecord(id)
	w := writer(t, l, source(id, 1))
	seen := make(chan []jobs.Event, 1)
	caught := make(chan bool, 100)
	go func() {
		var events []jobs.Event
		opts := session.FollowOptions{Job: id, Caught: func() { caught <- true }}
		for e, err := range l.Follow(jobstest.Context(t), id, 1, opts) {
			if err != nil {
				t.Error(err)
			}
			events = append(events, e)
		}
		seen <- events
	}()
	<-caught
	if err := w.Append(jobstest.Context(t), lines(3)...); err != nil {
		t.Fatal(err)
	}
	finish(t, l, first)
	if got := <-seen; len(got) != 5 || got[4].Kind != jobs.JobFinished {
		t.Errorf("%d events, want 5 and the last job.finished", len(got))
	}

	// After a retry the first terminal event is not the last one. Another
	// job of the session comes between, and yet another after the end.
	other := session.Source{Job: jobs.NewID(), Session: id}
	appendOne(t, l, other)
	appendOne(t, l, source(id, 2))
	second := first
	at := first.Finished.Add(time.Minute)
	second.Attempt, second.Finished = 2, &at
	finish(t, l, second)
	appendOne(t, l, other)
	var got []uint64
	for e, err := range l.Follow(jobstest.Context(t), id, 4, session.FollowOptions{Job: id}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	if len(got) != 5 || got[0] != 4 || got[4] != 8 {
		t.Errorf("events %v, want 4 to 8", got)
	}
}

// A session with many events, of which each comes alone, costs few reads of its job's
// record.
func TestFollowReadsTheRecordNowAndThen(t *testing.T) {
	t.Parallel()
	l := jobstest.Log(t, jobstest.Start(t).Connect())
	id, reads, began := jobs.NewID(), 0, time.Now()
	w := writer(t, l, source(id, 1))
	opts := session.FollowOptions{Job: id, Record: func(context.Context) (jobs.Record, error) {
		reads++
		return jobs.Record{ID: id, Session: id, State: jobs.Executing}, nil
	}}
	for e, err := range l.Follow(jobstest.Context(t), id, 1, opts) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 100 {
			break
		}
		time.AfterFunc(time.Millisecond, func() { // when the follower waits for it
			if err := w.Append(jobstest.Context(t), line("next")); err != nil {
				t.Error(err)
			}
		})
	}
	if most := 2 + int(time.Since(began).Seconds()); reads > most {
		t.Errorf("the record was read %d times, want %d at most", reads, most)
	}
}

// Many followers of one job read its record about as often as one would, and each of them
// ends when the job has finished without an event that says so.
func TestFollowersOfAJobShareItsRecord(t *testing.T) {
	t.Parallel()
	l := jobstest.Log(t, jobstest.Start(t).Connect())
	id, began := jobs.NewID(), time.Now()
	w := writer(t, l, source(id, 1))
	var reads atomic.Int64
	var finished atomic.Bool
	opts := session.FollowOptions{Job: id, Record: func(context.Context) (jobs.Record, error) {
		reads.Add(1)
		if finished.Load() {
			return finishedRecord(id), nil
		}
		return jobs.Record{ID: id, Session: id, State: jobs.Executing}, nil
	}}
	const followers = 50
	var caught, looked, ended sync.WaitGroup
	for range followers {
		caught.Add(1)
		looked.Add(1)
		ended.Go(func() {
			opts := opts
			opts.Caught = sync.OnceFunc(caught.Done)
			for e, err := range l.Follow(jobstest.Context(t), id, 1, opts) {
				if err != nil {
					t.Error(err)
				}
				if e.Seq == 2 { // between the two it has looked at the record
					looked.Done()
				}
			}
		})
	}
	caught.Wait()
	if err := w.Append(jobstest.Context(t), line("next")); err != nil {
		t.Fatal(err)
	}
	looked.Wait()
	if got, most := reads.Load(), 2+int64(time.Since(began).Seconds()); got > most {
		t.Errorf("%d followers have read the record %d times, want %d at most", followers, got, most)
	}
	finished.Store(true)
	ended.Wait()
	if jobstest.Context(t).Err() != nil {
		t.Error("a follower has not ended")
	}
}

// A follower that begins when others have just seen the job's end does not end by what they
// have seen: the job was brought back.
func TestFollowersEndByTheirOwnReading(t *testing.T) {
	t.Parallel()
	l := jobstest.Log(t, jobstest.Start(t).Connect())
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	over := session.FollowOptions{Job: id, Record: func(context.Context) (jobs.Record, error) { return finishedRecord(id), nil }}
	brought := session.FollowOptions{Job: id, Record: func(context.Context) (jobs.Record, error) {
		return jobs.Record{ID: id, Session: id, State: jobs.Executing}, nil
	}}
	looked := false
	brought.Caught = func() {
		if looked {
			return
		}
		looked = true
		for _, err := range l.Follow(jobstest.Context(t), id, 2, over) {
			t.Errorf("a follower of a job that is over gets %v", err)
		}
		time.AfterFunc(10*time.Millisecond, func() { // when the first follower has looked at the record
			if err := w.Append(jobstest.Context(t), line("next")); err != nil {
				t.Error(err)
			}
		})
	}
	got := uint64(0)
	for e, err := range l.Follow(jobstest.Context(t), id, 1, brought) {
		if err != nil {
			t.Fatal(err)
		}
		if got = e.Seq; got == 2 {
			break
		}
	}
	if got != 2 {
		t.Errorf("the follower has ended behind event %d, want 2", got)
	}
}

func appendOne(tb testing.TB, l *session.Log, src session.Source) {
	tb.Helper()
	if _, err := l.Append(jobstest.Context(tb), src, event.New(event.JobSubmitted{})); err != nil {
		tb.Fatal(err)
	}
}

func finishedRecord(id string) jobs.Record {
	at := time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC)
	return jobs.Record{ID: id, Session: id, Attempt: 2, State: jobs.Finished, Outcome: jobs.Success, Submitted: at.Add(-time.Minute), Finished: &at}
}

func finish(tb testing.TB, l *session.Log, rec jobs.Record) {
	tb.Helper()
	if err := l.Finish(jobstest.Context(tb), rec, rec.Result()); err != nil {
		tb.Fatal(err)
	}
}

func TestFinishOnce(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	rec := finishedRecord(id)
	writer(t, l, source(id, 1))
	count := func() (n int) {
		for _, e := range read(t, l, id, 1) {
			if e.Kind == jobs.JobFinished {
				n++
			}
		}
		return n
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { finish(t, l, rec) })
	}
	wg.Wait()
	if n := count(); n != 1 {
		t.Errorf("%d terminal events, want 1", n)
	}
	// Found also behind the events of another job.
	appendOne(t, l, session.Source{Job: jobs.NewID(), Session: id})
	finish(t, l, rec)
	if n := count(); n != 1 {
		t.Errorf("%d terminal events, want 1", n)
	}
	var res jobs.Result
	for _, e := range read(t, l, id, 1) {
		if e.Kind == jobs.JobFinished && json.Unmarshal(e.Data, &res) == nil && !e.Time.Equal(*rec.Finished) {
			t.Errorf("finished at %s, want %s", e.Time, rec.Finished)
		}
	}
	if res.Job != id || res.Outcome != jobs.Success || res.Durations.Total != 60 {
		t.Errorf("result %+v", res)
	}
}

// A sweep's event of a lost attempt stands before the job's end or is not written
// at all; behind another job of the session it does not make the job end twice.
func TestNothingFollowsTheEnd(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	rec := finishedRecord(id)
	tell := func() {
		t.Helper()
		if _, err := l.Append(jobstest.Context(t), session.Source{Job: id, Session: id}, event.New(event.SalvageStored{})); err != nil {
			t.Fatal(err)
		}
	}
	w := writer(t, l, source(id, 2))
	tell()
	if err := w.Append(jobstest.Context(t), line("the attempt goes on")); err != nil {
		t.Error(err)
	}
	finish(t, l, rec)
	tell()
	finish(t, l, rec)
	if got := len(read(t, l, id, 1)); got != 4 {
		t.Errorf("%d events, want 4", got)
	}
	appendOne(t, l, session.Source{Job: jobs.NewID(), Session: id})
	tell()
	finish(t, l, rec)
	if got := len(read(t, l, id, 1)); got != 6 {
		t.Errorf("%d events, want 6", got)
	}
}

func TestFinishFencesTheWriter(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	finish(t, l, finishedRecord(id))
	if err := w.Append(jobstest.Context(t), line("late")); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("append after the end: %v, want fenced", err)
	}
}

// What a dispatcher, or another job of the session, appends meanwhile does
// not end an attempt, and costs neither an event nor a number.
func TestOthersDoNotFence(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 50 {
			appendOne(t, l, session.Source{Job: jobs.NewID(), Session: id})
		}
	})
	for range 50 {
		if err := w.Append(jobstest.Context(t), lines(3)...); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if got, want := len(read(t, l, id, 1)), 1+50+150; got != want {
		t.Errorf("%d events, want %d", got, want)
	}
}

func TestTwoAttemptsRace(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	old := writer(t, l, source(id, 1))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if err := old.Append(jobstest.Context(t), lines(5)...); err != nil {
				if !errors.Is(err, jobs.ErrFenced) {
					t.Errorf("append: %v, want fenced", err)
				}
				return
			}
		}
	})
	time.Sleep(20 * time.Millisecond) // let it write something
	fresh := writer(t, l, source(id, 2))
	for range 20 {
		if err := fresh.Append(jobstest.Context(t), lines(5)...); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	attempt := 1
	for _, e := range read(t, l, id, 1) {
		if e.Attempt < attempt {
			t.Fatalf("event %d is of attempt %d, after one of attempt %d", e.Seq, e.Attempt, attempt)
		}
		attempt = e.Attempt
	}
	if attempt != 2 {
		t.Errorf("the last attempt is %d, want 2", attempt)
	}
}

func TestUnansweredAppends(t *testing.T) {
	s := jobstest.Start(t)
	p := s.Proxy()
	l := jobstest.Log(t, jobstest.Connect(t, p.URL()))
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	total := 1
	for _, n := range []int{1, 20} {
		p.Blackhole()
		heal := time.AfterFunc(200*time.Millisecond, p.Heal)
		if err := w.Append(jobstest.Context(t), lines(n)...); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
		heal.Stop()
		total += n
	}
	if got := len(read(t, l, id, 1)); got != total {
		t.Errorf("%d events, want %d", got, total)
	}
}

// An append whose answer is lost, and that others append after before it is looked for, is
// found to be stored: its events are there once.
func TestAnUnansweredAppendThatOthersFollow(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 40} { // alone, and as a batch
		s := jobstest.Start(t)
		p := s.Proxy()
		l, others := jobstest.Log(t, jobstest.Connect(t, p.URL())), jobstest.Log(t, s.Connect())
		id := jobs.NewID()
		w := writer(t, l, source(id, 1))
		p.Blackhole()
		appended := make(chan error, 1)
		go func() { appended <- w.Append(jobstest.Context(t), lines(n)...) }()
		for e, err := range others.Follow(jobstest.Context(t), id, 1, session.FollowOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq == uint64(1+n) {
				break
			}
		}
		appendOne(t, others, session.Source{Job: jobs.NewID(), Session: id})
		p.Heal()
		if err := <-appended; err != nil {
			t.Fatal(err)
		}
		if err := w.Append(jobstest.Context(t), line("after")); err != nil {
			t.Fatal(err)
		}
		if got, want := len(read(t, others, id, 1)), 1+n+1+1; got != want {
			t.Errorf("%d events after an append of %d, want %d", got, n, want)
		}
		var want receipt.Chain
		for _, e := range read(t, others, id, 1) {
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			want.Add(e.Seq, text)
		}
		if got := w.Chain(); got != want {
			t.Errorf("the chain is from %d to %d, %s; that of what is stored is from %d to %d, %s", got.First, got.Last, got.Sum(), want.First, want.Last, want.Sum())
		}
	}
}

// The event that an attempt begins with is stored once, also where its answer was lost and
// others have appended behind it before it was looked for.
func TestAnUnansweredBeginningThatOthersFollow(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := s.Proxy()
	l, others := jobstest.Log(t, jobstest.Connect(t, p.URL())), jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	appendOne(t, others, source(id, 0))
	p.Delay(time.Second) // in which the answer is on its way
	begun := make(chan error, 1)
	go func() {
		w, err := l.Writer(jobstest.Context(t), source(id, 1), line("begin"))
		if err == nil {
			err = w.Append(jobstest.Context(t), line("after"))
		}
		begun <- err
	}()
	for e, err := range others.Follow(jobstest.Context(t), id, 1, session.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 2 {
			break
		}
	}
	appendOne(t, others, session.Source{Job: jobs.NewID(), Session: id})
	p.Cut()
	p.Heal()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	if got := read(t, others, id, 1); len(got) != 4 {
		t.Errorf("%d events, want 4: %+v", len(got), got)
	}
}

func TestAppendWaitsForTheServer(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	s.Down()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := w.Append(ctx, line("lost")); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("append: %v, want that the server does not answer", err)
	}
	appended := make(chan error, 1)
	go func() { appended <- w.Append(jobstest.Context(t), line("kept")) }()
	s.Up()
	if err := <-appended; err != nil {
		t.Errorf("append across the outage: %v", err)
	}
	// The first one may have been stored after all; nothing is there twice.
	if got := len(read(t, l, id, 1)); got != 2 && got != 3 {
		t.Errorf("%d events, want 2 or 3", got)
	}
}

func TestLargeAndBrokenEvents(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	long := strings.Repeat("ä<", 400<<10)
	many := json.RawMessage(`["short"` + strings.Repeat(`,"short"`, 99_999) + `]`)
	raw := line("with raw")
	raw.Raw = &jobs.Raw{Stream: "stdout", N: 1, JSON: json.RawMessage(`"` + strings.Repeat("x", 600<<10) + `"`)}
	broken := jobs.Event{Kind: jobs.AgentRaw, Data: json.RawMessage(`{"a":`), Raw: &jobs.Raw{JSON: json.RawMessage("}")}}
	for _, e := range []jobs.Event{line(long), {Kind: jobs.ToolOutput, Data: many}, raw, broken} {
		if err := w.Append(jobstest.Context(t), e); err != nil {
			t.Fatalf("append %s: %v", e.Kind, err)
		}
	}
	events := read(t, l, id, 1)
	for i, mark := range []string{"bytes cut", "bytes cut", "bytes cut", `{\"a\":`} {
		data, err := json.Marshal(events[i+1])
		if err != nil || len(data) > jobs.MaxEventBytes+1024 || !strings.Contains(string(data), mark) {
			t.Errorf("event %d: %d bytes, %v; want at most %d with %q", i+2, len(data), err, jobs.MaxEventBytes, mark)
		}
	}
}
