package session_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

func source(id string, attempt int) session.Source {
	return session.Source{Job: id, Session: id, Agent: "command", Attempt: attempt, Epoch: uint64(attempt)}
}

func line(text string) jobs.Event {
	return event.New(event.OutputLine{Stream: "stdout", Text: text})
}

func lines(n int) []jobs.Event {
	out := make([]jobs.Event, n)
	for i := range out {
		out[i] = line("a line of output that is about as long as most of them are")
	}
	return out
}

func claimed() jobs.Event { return event.New(event.JobClaimed{Worker: "w"}) }

func writer(tb testing.TB, l *session.Log, src session.Source) *session.Writer {
	tb.Helper()
	w, err := l.Writer(jobstest.Context(tb), src, claimed())
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// read returns the session's events and fails unless they are numbered from
// the given number on without gap or double.
func read(tb testing.TB, l *session.Log, id string, from uint64) []jobs.Event {
	tb.Helper()
	var events []jobs.Event
	for e, err := range l.Read(jobstest.Context(tb), id, from) {
		if err != nil {
			tb.Fatal(err)
		}
		if want := from + uint64(len(events)); e.Seq != want {
			tb.Fatalf("event %d, want %d", e.Seq, want)
		}
		events = append(events, e)
	}
	return events
}

func TestAppendRead(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	w := writer(t, l, source(id, 1))
	for _, n := range []int{1, 3, 700, 1} {
		if err := w.Append(jobstest.Context(t), lines(n)...); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := len(read(t, l, id, 1)), 706; got != want {
		t.Errorf("%d events, want %d", got, want)
	}
	if got, want := len(read(t, l, id, 400)), 307; got != want {
		t.Errorf("%d events from 400 on, want %d", got, want)
	}
}

// The first event of a session is stored once, whoever begins the session and however often.
func TestBegin(t *testing.T) {
	t.Parallel()
	l := jobstest.Log(t, jobstest.Start(t).Connect())
	id := jobs.NewID()
	var all sync.WaitGroup
	var begun atomic.Int32
	for range 8 {
		all.Go(func() {
			mine, err := l.Begin(jobstest.Context(t), source(id, 0), event.New(event.JobSubmitted{Title: "begin"}))
			if err != nil {
				t.Error(err)
			}
			if mine {
				begun.Add(1)
			}
		})
	}
	all.Wait()
	if n := begun.Load(); n != 1 {
		t.Errorf("%d have begun the session, want one", n)
	}
	if events := read(t, l, id, 1); len(events) != 1 || events[0].Kind != jobs.JobSubmitted {
		t.Errorf("the session has %+v", events)
	}
	bad := source("a.b", 0)
	if _, err := l.Begin(jobstest.Context(t), bad, line("x")); err == nil {
		t.Error("a session whose name is no token was begun")
	}
}

func TestLaterAttemptFences(t *testing.T) {
	s := jobstest.Start(t)
	l := jobstest.Log(t, s.Connect())
	id := jobs.NewID()
	old := writer(t, l, source(id, 1))
	fresh := writer(t, l, source(id, 2))
	if err := old.Append(jobstest.Context(t), lines(3)...); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("append by the first attempt: %v, want fenced", err)
	}
	if err := fresh.Append(jobstest.Context(t), line("mine")); err != nil {
		t.Errorf("append by the second attempt: %v", err)
	}
	if err := old.Append(jobstest.Context(t), line("again")); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("append by the first attempt: %v, want fenced", err)
	}
	if got := len(read(t, l, id, 1)); got != 3 {
		t.Errorf("%d events, want 3", got)
	}
}
