package watchdog

import (
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// What tells a program that works from one that only waits.
func TestWhatIsWork(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	before := activity{cpu: time.Second, io: 1 << 20}
	for name, tt := range map[string]struct {
		cpu   time.Duration
		io    int64
		span  time.Duration
		works bool
	}{
		"nothing":                   {0, 0, time.Second, false},
		"it wakes up now and then":  {9 * ms, 100, time.Second, false},
		"a tick of the processor":   {10 * ms, 0, time.Second, true},
		"a tick in half a minute":   {10 * ms, 0, 30 * time.Second, false},
		"a page":                    {0, 4 << 10, 100 * ms, true},
		"a page in half a minute":   {0, 4 << 10, 30 * time.Second, false},
		"a slow disk":               {0, 200 << 10, 30 * time.Second, true},
		"a process ended, unwaited": {-200 * ms, 0, time.Second, true},
		"one that read, too":        {0, -1, time.Second, true},
	} {
		after := activity{cpu: before.cpu + tt.cpu, io: before.io + tt.io}
		if got := works(before, after, tt.span); got != tt.works {
			t.Errorf("%s: works is %t, want %t", name, got, tt.works)
		}
	}
}

// A stillness is an agent's processes, as a test wants them.
type stillness struct {
	did    activity
	halted int
}

func (s *stillness) Activity() (time.Duration, int64) { return s.did.cpu, s.did.io }
func (s *stillness) Halted() int                      { return s.halted }

// Each way to hang is found when its limit is reached, and not before.
func TestAHangIsFound(t *testing.T) {
	t.Parallel()
	limits := Hangs{Start: time.Minute, Halt: time.Minute, Exit: time.Second, Output: 10_000, Retries: 2}
	begin := time.Now()
	retry := agent.Read{Events: []event.Event{event.Make(event.Retry{Class: "overloaded", HTTP: 529})}}
	message := agent.Read{Events: []event.Event{event.Make(event.Message{})}}
	for name, tt := range map[string]struct {
		does func(w *Watchdog, p *stillness)
		look func(w *Watchdog, now time.Time) *event.Hang
		at   time.Duration // the limit
		want jobs.Reason
		what string
	}{
		"it does not exit": {
			func(w *Watchdog, _ *stillness) { w.InputClosed(begin) },
			func(w *Watchdog, now time.Time) *event.Hang { found, _ := w.Exiting(now); return found },
			time.Second, "", "exit",
		},
		"it writes nothing": {
			func(*Watchdog, *stillness) {},
			func(w *Watchdog, now time.Time) *event.Hang { found, _ := w.Starting(now); return found },
			time.Minute, jobs.StartLimit, "start",
		},
		"its processes are stopped": {
			func(w *Watchdog, p *stillness) {
				p.halted = 1
				w.looked, w.halted = begin.Add(-time.Hour), begin
			},
			func(w *Watchdog, now time.Time) *event.Hang {
				w.looked = time.Time{}
				found, _ := w.Suspended(now, w.Quiet(now))
				return found
			},
			time.Minute, jobs.AgentHalted, "stopped",
		},
	} {
		p := &stillness{}
		w := &Watchdog{limits: limits, idle: time.Hour, greets: true}
		w.Start(begin, p)
		tt.does(w, p)
		if found := tt.look(w, begin.Add(tt.at-time.Millisecond)); found != nil {
			t.Errorf("%s: found before its time: %+v", name, found)
		}
		w.measured = begin
		if found := tt.look(w, begin.Add(tt.at)); found == nil || found.Reason != tt.want || found.What != tt.what {
			t.Errorf("%s: found %+v", name, found)
		}
	}
	w := &Watchdog{limits: limits}
	w.Start(begin, nil)
	for n := range 6 {
		if read := retry; n == 2 {
			w.Line(begin, minLine, message) // from here on it is another call
		} else {
			w.Line(begin, minLine, read)
		}
		if found := w.Excess(begin); (found != nil) != (n == 5) || found != nil && found.Reason != jobs.RetryLimit {
			t.Errorf("after line %d: %+v", n, found)
		}
	}
	w = &Watchdog{limits: limits}
	for range 9 {
		w.Line(begin, 0, message) // counts as a KiB
	}
	if w.Excess(begin) != nil {
		t.Error("9 KiB are too much")
	}
	w.Wrote(1000)
	if found := w.Excess(begin); found == nil || found.Reason != jobs.OutputLimit {
		t.Errorf("too much output: %+v", found)
	}
}

// An agent that works has as much processor time for its start as it may take by the clock.
func TestAnAgentThatWorksMayStartSlowly(t *testing.T) {
	t.Parallel()
	begin, p := time.Now(), &stillness{}
	w := &Watchdog{limits: Hangs{Start: time.Minute}, greets: true}
	w.Start(begin, p)
	for n := 1; n <= 12; n++ {
		p.did.cpu += 5 * time.Second
		found, _ := w.Starting(begin.Add(time.Duration(n) * 15 * time.Second))
		if (found != nil) != (n == 12) {
			t.Errorf("after %v, with %v of processor time: %+v", time.Duration(n)*15*time.Second, p.did.cpu, found)
		}
	}
	w.Line(begin, 1, agent.Read{})
	if found, _ := w.Starting(begin.Add(time.Hour)); found != nil {
		t.Errorf("it has spoken: %+v", found)
	}
}

// Silence is blamed on the model API where the agent waits for it.
func TestSilenceIsExplained(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	w := &Watchdog{idle: time.Minute}
	w.Start(begin, nil)
	w.Line(begin, 1, agent.Read{Retried: jobs.RateLimited})
	if found := w.Silent(begin.Add(time.Minute)); found.Reason != jobs.RateLimited {
		t.Errorf("while it retries: %+v", found)
	}
	w.Line(begin, 1, agent.Read{})
	if found := w.Silent(begin.Add(time.Minute)); found.Reason != jobs.IdleLimit || found.Seconds != 60 {
		t.Errorf("without a cause: %+v", found)
	}
}
