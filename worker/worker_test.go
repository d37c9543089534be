package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

func TestDrainOutlivesItsContextByTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		work, cancel := drain(ctx, time.Minute)
		defer cancel()
		stop()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if work.Err() != nil {
			t.Fatalf("ended after 59 s: %v", context.Cause(work))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := context.Cause(work); !errors.Is(got, jobs.ErrDraining) {
			t.Errorf("cause: got %v, want %v", got, jobs.ErrDraining)
		}
	})
}

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
	r := newRecorder(same, Hooks{}, func(error) {})
	r.start(t.Context(), to)
	for i := range 1000 {
		r.putOutput(line(fmt.Sprint(i)))
	}
	if err := r.close(t.Context()); err != nil {
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
	r := newRecorder(same, Hooks{}, func(error) {})
	r.start(t.Context(), to)
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		for range backlog * 3 {
			r.putOutput(line("x"))
			r.pace()
		}
	}()
	select {
	case <-blocked:
		t.Error("three times the backlog was taken without anything being stored")
	case <-time.After(50 * time.Millisecond):
	}
	close(to.wait)
	<-blocked
	if err := r.close(t.Context()); err != nil || len(to.events) != backlog*3 {
		t.Errorf("kept %d events, %v", len(to.events), err)
	}
}

func TestTheRecorderDropsAFloodAndSaysSo(t *testing.T) {
	t.Parallel()
	to := &kept{}
	var dropped string
	r := newRecorder(same, Hooks{Dropped: func(reason string) { dropped = reason }}, func(error) {})
	r.start(t.Context(), to)
	big := line(strings.Repeat("x", 1<<20))
	for range maxOutput>>20 + 5 {
		r.putOutput(big)
	}
	r.put(event.Make(event.JobRequeued{}))
	if err := r.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := to.events[len(to.events)-1]
	var said event.Notice
	if err := json.Unmarshal(last.Data, &said); err != nil || last.Kind != jobs.Notice || said.Dropped < 5 || dropped != "too_large" {
		t.Errorf("the last event is %s %s (%v), and the hook heard %q", last.Kind, last.Data, err, dropped)
	}
	if to.events[len(to.events)-2].Kind != jobs.JobRequeued {
		t.Error("an event of the pool was dropped with the flood")
	}
}

func TestTheRecorderEndsTheAttemptOnceWhenItCannotAppend(t *testing.T) {
	t.Parallel()
	to := &kept{fail: jobs.ErrFenced}
	told := make(chan error, 10)
	r := newRecorder(same, Hooks{}, func(err error) { told <- err })
	r.start(t.Context(), to)
	for range backlog * 3 {
		r.putOutput(line("x"))
	}
	if err := r.close(t.Context()); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("close: got %v, want %v", err, jobs.ErrFenced)
	}
	if len(told) != 1 {
		t.Errorf("told %d times", len(told))
	}
}

// A broker that is away must not hold a worker that has lost its lease.
func TestALostLeaseAbortsTheRecorder(t *testing.T) {
	t.Parallel()
	to := &kept{wait: make(chan struct{})}
	ctx, end := context.WithCancelCause(t.Context())
	r := newRecorder(same, Hooks{}, func(error) {})
	r.start(ctx, to)
	r.put(line("x"))
	end(jobs.ErrFenced)
	closed := make(chan error, 1)
	go func() { closed <- r.close(context.WithoutCancel(ctx)) }()
	select {
	case err := <-closed:
		if err == nil {
			t.Error("closed as if everything were stored")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("close waits for a broker that is away")
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var out tail
	for i := range 20_000 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	if got := out.String(); len(got) > tailSize || !strings.HasSuffix(got, "line 19999\n") {
		t.Errorf("kept %d bytes, ending in %q", len(got), got[len(got)-20:])
	}
}
