package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// The broker is away for longer than the lease. The worker's own clock ends
// the agent before another worker could begin, however little the agent cares
// for signals; the job is run again, once.
func TestABrokerThatIsAwayForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f := newField(t)
	proxy := f.server.Proxy()
	f.use(f.connect(proxy.URL()))
	var fenced, settled atomic.Int32
	f.cfg.Hooks.Fenced = func(jobs.Record) { fenced.Add(1) }
	f.cfg.Hooks.Settled = func(jobs.Record, jobs.Result) { settled.Add(1) }
	var released []jobs.Record // by the one slot
	f.cfg.Hooks.Released = func(rec jobs.Record) { released = append(released, rec) }
	f.cfg.Slots = 1 // no other worker takes the job over first
	stop := f.work()
	rec := f.submit(f.job(`trap "" TERM INT HUP; echo begun; [ $PENSTOCK_ATTEMPT = 2 ] && exit; while :; do sleep 0.1; done`))
	f.runs(rec.ID)
	if len(processesOf(rec.ID)) == 0 {
		t.Fatal("the agent's processes cannot be found, so neither can their absence")
	}
	proxy.Cut()
	cut := time.Now()
	f.until("the agent ends", func() bool { return len(processesOf(rec.ID)) == 0 })
	if took := time.Since(cut); took > testLease {
		t.Errorf("the agent lived for %v without the broker; the lease is %v", took, testLease)
	}
	// On a machine so busy that the lease is long, the worker would not wait for the broker
	// until then: what it does after the end by its own clock is what is tested.
	time.Sleep(time.Until(cut.Add(min(testLease+time.Second, testLease*3/4+surrenderLimit/2))))
	proxy.Heal()
	got, events := f.ended(rec.ID)
	stop()
	if got.Outcome != jobs.Success || got.Attempt != 2 || got.Counted != 0 {
		t.Errorf("%s %s after %d attempts, %d counted; want success, 2, 0", got.Outcome, got.Reason, got.Attempt, got.Counted)
	}
	if got.Lost != 1 || got.Deaths != 0 {
		t.Errorf("lost %d, %d by deaths; want 1, and no worker taken for dead", got.Lost, got.Deaths)
	}
	if len(released) != 2 || released[0].State != jobs.Pending || released[0].Reason != jobs.LeaseLost {
		t.Errorf("released %+v, want two attempts, the first handed back", released)
	}
	if fenced.Load() != 1 || settled.Load() != 1 {
		t.Errorf("fenced %d times, settled %d times; want once each", fenced.Load(), settled.Load())
	}
	for _, e := range events {
		if e.Attempt == 1 && (e.Kind == jobs.RunExited || e.Kind == jobs.JobFinished) {
			t.Errorf("the lost attempt still told of %s", e.Kind)
		}
	}
}

// What the worker asks for when it settles happens, and no answer comes: at
// each of the steps, for a while.
func TestAMuteBrokerWhileSettling(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"agent", "collect", "cleanup"} {
		t.Run("after "+stage, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			proxy := f.server.Proxy()
			f.use(f.connect(proxy.URL()))
			var once atomic.Bool
			f.cfg.Hooks.Stage = func(_ jobs.Record, name string, _ time.Duration) {
				if name == stage && once.CompareAndSwap(false, true) {
					proxy.Blackhole()
					time.AfterFunc(testLease/4, proxy.Heal)
				}
			}
			rec, events := f.run(f.job("echo hello > new.txt"))
			if rec.Outcome != jobs.Success || rec.Attempt != 1 {
				t.Errorf("%s %s (%s) after %d attempts: %s", rec.Outcome, rec.Reason, rec.Message, rec.Attempt, kinds(events))
			}
			list, err := f.eye.store.List(t.Context(), rec.ID, rec.Epoch)
			if err != nil || len(list) != 1 {
				t.Errorf("artifacts %v, err %v; want the patch", list, err)
			}
		})
	}
}

// A job that is cancelled while it ends is either done or cancelled, in the record, the
// result and the events alike.
func TestACancelRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	stages := []string{"provision", "jail", "agent", "collect", "cleanup"}
	for _, stage := range stages {
		t.Run("after "+stage, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			var id atomic.Value
			f.cfg.Hooks.Claimed = func(rec jobs.Record) { id.Store(rec.ID) }
			cancelled := make(chan error, len(stages))
			var once atomic.Bool
			f.cfg.Hooks.Stage = func(_ jobs.Record, name string, _ time.Duration) {
				if name == stage && once.CompareAndSwap(false, true) {
					go func() {
						_, err := f.eye.queue.Cancel(context.Background(), id.Load().(string), "test")
						cancelled <- err
					}()
				}
			}
			rec, events := f.run(f.job("echo hello > new.txt; sleep 0.2"))
			err := <-cancelled
			if err != nil && !errors.Is(err, jobs.ErrFinished) {
				t.Fatal(err)
			}
			if rec.Outcome != jobs.Cancellation && rec.Outcome != jobs.Success || rec.Outcome == jobs.Success && err == nil {
				t.Errorf("%s %s, and the canceller was told %v", rec.Outcome, rec.Reason, err)
			}
			result, err := f.eye.store.Result(t.Context(), rec)
			last := events[len(events)-1]
			if err != nil || result.Outcome != rec.Outcome || last.Kind != jobs.JobFinished {
				t.Errorf("the record says %s, the result %s, the last event is %s; err %v", rec.Outcome, result.Outcome, last.Kind, err)
			}
		})
	}
}

// Ten jobs of four slots, with a broker that comes and goes.
func TestAFlappingBroker(t *testing.T) {
	t.Parallel()
	f := newField(t)
	proxy := f.server.Proxy()
	f.use(f.connect(proxy.URL()))
	f.cfg.Slots = 4
	stop := f.work()
	var ids []string
	for i := range 10 {
		ids = append(ids, f.submit(f.job(fmt.Sprintf("sleep 0.5; echo %d > new.txt", i))).ID)
	}
	for range 6 {
		time.Sleep(300 * time.Millisecond)
		proxy.Cut()
		time.Sleep(200 * time.Millisecond)
		proxy.Heal()
	}
	for _, id := range ids {
		if rec, events := f.ended(id); rec.Outcome != jobs.Success || rec.Counted != 0 {
			t.Errorf("job %s: %s %s (%s): %s", id, rec.Outcome, rec.Reason, rec.Message, kinds(events))
		}
	}
	stop()
}
