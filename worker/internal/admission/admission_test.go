package admission_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/worker/internal/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A drain is settled when the last slot that waited for a job has counted what it got, and
// observers hear of that.
func TestADrainSettlesWithTheLastSlot(t *testing.T) {
	a := admission.New(nil)
	first, firstDone := a.Wait(t.Context())
	second, secondDone := a.Wait(t.Context())
	if !a.SetDrain(&why.Drain{By: "test", At: time.Now()}) {
		t.Error("the drain has not begun")
	}
	<-first.Done()
	<-second.Done()
	firstDone()
	now := a.State()
	if now.Drain == nil || now.Settled {
		t.Errorf("got %+v, want a drain that one slot keeps from being settled", now)
	}
	secondDone()
	<-now.Changed
	if !a.State().Settled {
		t.Error("no slot waits, and the drain is not settled")
	}

	ended, end := context.WithCancel(t.Context())
	end()
	_, done := a.Wait(ended)
	done()
	if !a.State().Settled {
		t.Error("a slot that never waited for a job is counted")
	}
	entered := make(chan func())
	go func() { _, done := a.Wait(t.Context()); entered <- done }()
	if a.SetLow(errors.New("low")); a.SetDrain(nil) {
		select {
		case <-entered:
			t.Error("a slot waits for a job while the disk is low")
		case <-time.After(20 * time.Millisecond):
		}
	}
	a.SetLow(nil)
	(<-entered)()
}

// The end of the worker is no drain that a request takes back.
func TestAnEndStays(t *testing.T) {
	var heard []*why.Drain
	a := admission.New(func(d *why.Drain) { heard = append(heard, d) })
	asked, end := &why.Drain{By: "cli"}, &why.Drain{By: "signal", Ends: true}
	for _, step := range []struct {
		drain, after *why.Drain
		turned       bool
	}{{nil, nil, false}, {asked, asked, true}, {&why.Drain{By: "other"}, asked, false}, {nil, nil, true}, {asked, asked, true}, {end, end, false}, {nil, end, false}, {asked, end, false}} {
		if turned := a.SetDrain(step.drain); turned != step.turned || a.State().Drain != step.after {
			t.Errorf("after %v: turned %t, %v; want %t, %v", step.drain, turned, a.State().Drain, step.turned, step.after)
		}
	}
	if len(heard) != 3 || heard[0] != asked || heard[1] != nil || heard[2] != asked {
		t.Errorf("observers have heard %v", heard)
	}
}
