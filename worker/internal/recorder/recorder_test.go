package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is where a recorder appends in these tests. It can be slow, and fail.
type kept struct {
	mu     sync.Mutex
	events []jobs.Event
	fail   error
	wait   chan struct{}
}

func (k *kept) Append(ctx context.Context, events ...jobs.Event) error {
	if k.wait != nil {
		select {
		case <-k.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	k.events = append(k.events, events...)
	return nil
}

func same(e jobs.Event) jobs.Event { return e }

func line(text string) event.Event {
	return event.Make(event.OutputLine{Stream: "stdout", Text: text})
}

func TestTheRecorderKeepsOrder(t *testing.T) {
	t.Parallel()
	to := &kept{}
	r := New(same, Hooks{}, func(error) {})
	r.Start(t.Context(), to)
	for i := range 1000 {
		r.PutOutput(line(fmt.Sprint(i)))
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, e := range to.events {
		if want := fmt.Sprintf(`{"stream":"stdout","text":"%d"}`, i); string(e.Data) != want {
			t.Fatalf("event %d: got %s, want %s", i, e.Data, want)
		}
	}
	if len(to.events) != 1000 {
		t.Errorf("kept %d events, want 1000", len(to.events))
	}
}

// An agent that writes faster than the broker takes waits; it does not fill
// the worker's memory.
func TestTheRecorderPushesBack(t *testing.T) {
	t.Parallel()
	to := &kept{wait: make(chan struct{})}
	r := New(same, Hooks{}, func(error) {})
	r.Start(t.Context(), to)
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		for range backlog * 3 {
			r.PutOutput(line("x"))
			r.Pace()
		}
	}()
	select {
	case <-blocked:
		t.Error("three times the backlog was taken without anything being stored")
	case <-time.After(50 * time.Millisecond):
	}
	close(to.wait)
	<-blocked
	if err := r.Close(t.Context()); err != nil || len(to.events) != backlog*3 {
		t.Errorf("kept %d events, %v", len(to.events), err)
	}
}

// An event has the time at which it came, not that at which the broker took it.
func TestAnEventHasTheTimeAtWhichItCame(t *testing.T) {
	t.Parallel()
	to := &kept{wait: make(chan struct{})}
	r := New(same, Hooks{}, func(error) {})
	r.Start(t.Context(), to)
	began := time.Now()
	r.PutOutput(line("x"))
	ended := time.Now()
	time.Sleep(10 * time.Millisecond)
	close(to.wait)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := to.events[0].Time; got.Before(began) || got.After(ended) {
		t.Errorf("it came between %v and %v, and has %v", began, ended, got)
	}
}

func TestTheRecorderDropsAFloodAndSaysSo(t *testing.T) {
	t.Parallel()
	to := &kept{}
	dropped := map[string]int{}
	r := New(same, Hooks{Dropped: func(reason string, n int) { dropped[reason] += n }}, func(error) {})
	r.Start(t.Context(), to)
	big := line(strings.Repeat("x", 1<<20))
	for range maxOutput>>20 + 5 {
		r.PutOutput(big)
	}
	r.Put(event.Make(event.JobRequeued{}))
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := to.events[len(to.events)-1]
	var said event.Notice
	if err := json.Unmarshal(last.Data, &said); err != nil || last.Kind != jobs.Notice || said.Dropped < 5 || dropped["too_large"] != said.Dropped {
		t.Errorf("the last event is %s %s (%v), and the hook heard %v", last.Kind, last.Data, err, dropped)
	}
	if to.events[len(to.events)-2].Kind != jobs.JobRequeued {
		t.Error("an event of the pool was dropped with the flood")
	}
}

func TestTheRecorderEndsTheAttemptOnceWhenItCannotAppend(t *testing.T) {
	t.Parallel()
	to := &kept{fail: jobs.ErrFenced}
	told := make(chan error, 10)
	r := New(same, Hooks{}, func(err error) { told <- err })
	r.Start(t.Context(), to)
	for range backlog * 3 {
		r.PutOutput(line("x"))
	}
	if err := r.Close(t.Context()); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("close: got %v, want %v", err, jobs.ErrFenced)
	}
	if len(told) != 1 {
		t.Errorf("told %d times", len(told))
	}
}

// Events that the log does not take are counted, the later ones, too; not where another
// attempt has the job, and writes its log.
func TestTheRecorderCountsEventsThatAreNotStored(t *testing.T) {
	t.Parallel()
	for refused, want := range map[error]int{jobs.ErrFull: 100, jobs.ErrFenced: 0} {
		dropped := map[string]int{}
		r := New(same, Hooks{Dropped: func(reason string, n int) { dropped[reason] += n }}, func(error) {})
		r.Start(t.Context(), &kept{fail: refused})
		for range 100 {
			r.PutOutput(line("x"))
		}
		if err := r.Close(t.Context()); !errors.Is(err, refused) || dropped["publish_error"] != want {
			t.Errorf("%v: %v, and the hook heard %v, want %d", refused, err, dropped, want)
		}
	}
}

// A broker that is away must not hold a worker that has lost its lease.
func TestALostLeaseAbortsTheRecorder(t *testing.T) {
	t.Parallel()
	to := &kept{wait: make(chan struct{})}
	ctx, end := context.WithCancelCause(t.Context())
	r := New(same, Hooks{}, func(error) {})
	r.Start(ctx, to)
	r.Put(line("x"))
	end(jobs.ErrFenced)
	closed := make(chan error, 1)
	go func() { closed <- r.Close(context.WithoutCancel(ctx)) }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("closed as if everything were stored")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("close waits for a broker that is away")
	}
}
