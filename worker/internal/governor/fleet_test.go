package governor

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-run/penstock/jobs/ratelimit"
)

// work makes the calls of one session, with a pause of up to a second between them, until ctx ends, and counts those that
// were accepted.
func (s single) work(ctx context.Context, api *stub, took time.Duration, served *atomic.Int32) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		arrived := time.Now()
		for again := true; again; {
			pass, err := s.Acquire(ctx, "m", arrived, 4*time.Minute)
			if err != nil {
				break
			}
			answer, _ := api.call(time.Now())
			if again = answer.Kind != Served; again {
				time.Sleep(50 * time.Millisecond)
			} else {
				time.Sleep(took)
				served.Add(1)
			}
			pass.Done("m", answer)
		}
	}
}

// exchange lets workers tell each other how they use the key, as package sharedlimits does, until ctx ends.
func exchange(ctx context.Context, workers []single) {
	var told ratelimit.State
	for ctx.Err() == nil {
		time.Sleep(5 * time.Second)
		for _, w := range workers {
			if w.Due() {
				told = told.Merge(w.Export(), time.Now())
			}
			w.Import(told)
		}
	}
}

// begin counts the calls of an API anew.
func (s *stub) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.served = 0, 0
}

// refused is the share of the calls that were refused since then.
func (s *stub) refused() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.asked-s.served) / float64(s.asked)
}

// Of two workers one has three times the pace of the other. What they tell each other makes it even, for their
// sessions; and when one has nothing left to do, the other has all of it soon.
func TestWorkersShareTheirPace(t *testing.T) {
	for name, sessions := range map[string][2]int{"as many sessions": {30, 30}, "more sessions": {60, 20}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &stub{api: api{rate: 5, size: 10, after: true, at: time.Now()}}
				workers := []single{alone("a"), alone("a")}
				for i, rate := range []float64{1.25, 3.75} {
					workers[i].queue("m").line.rate = rate
				}
				ctx, stop := context.WithCancel(t.Context())
				first, enough := context.WithCancel(ctx)
				var served [2]atomic.Int32
				var fleet sync.WaitGroup
				for i, n := range sessions {
					for range n {
						fleet.Go(func() { workers[i].work([]context.Context{first, ctx}[i], api, time.Second, &served[i]) })
					}
				}
				fleet.Go(func() { exchange(ctx, workers) })
				during := func(d time.Duration) (rates [2]float64) {
					before := [2]int32{served[0].Load(), served[1].Load()}
					time.Sleep(d)
					for i := range rates {
						rates[i] = float64(served[i].Load()-before[i]) / d.Seconds()
					}
					return rates
				}
				time.Sleep(time.Minute)
				both := during(3 * time.Minute)
				enough()
				time.Sleep(40 * time.Second)
				api.begin()
				one, refused := during(2 * time.Minute)[1], api.refused()
				stop()
				fleet.Wait()
				ratio := both[0] / float64(sessions[0]) / (both[1] / float64(sessions[1]))
				t.Logf("together %.2f calls a second, %.2f times as many for each session; alone %.2f, %.1f %% refused", both, ratio, one, 100*refused)
				if ratio < 0.66 || ratio > 1.5 || both[0]+both[1] < 0.9*5 {
					t.Errorf("together %.2f calls a second, a session of the one makes %.2f times as many as one of the other", both, ratio)
				}
				if one < 0.9*5 || refused > 0.05 {
					t.Errorf("alone it makes %.2f calls a second, and %.1f %% are refused", one, 100*refused)
				}
			})
		})
	}
}

// Workers with few sessions each find their share of a low limit, although each is refused often before one of its calls
// is accepted.
func TestManySmallWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{api: api{rate: 2, size: 60, after: true, at: time.Now()}}
		ctx, stop := context.WithCancel(t.Context())
		var workers []single
		var served atomic.Int32
		var fleet sync.WaitGroup
		for range 30 {
			w := alone("a")
			workers = append(workers, w)
			for range 3 {
				fleet.Go(func() { w.work(ctx, api, 10*time.Second, &served) })
			}
		}
		fleet.Go(func() { exchange(ctx, workers) })
		time.Sleep(3 * time.Minute)
		api.begin()
		before := served.Load()
		time.Sleep(10 * time.Minute)
		used, refused := float64(served.Load()-before)/(2*600), api.refused()
		stop()
		fleet.Wait()
		t.Logf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
		if used < 0.85 || refused > 0.15 {
			t.Errorf("%.1f %% used, %.1f %% refused", 100*used, 100*refused)
		}
	})
}

// An outage is an API that takes no calls between two moments.
type outage struct {
	stub
	from, over time.Time
	// told are the calls that came meanwhile, and late those that came later than at once.
	told, late atomic.Int32
}

func (o *outage) call() Answer {
	switch now := time.Now(); {
	case now.Before(o.from) || !now.Before(o.over):
		answer, _ := o.stub.call(now)
		return answer
	case now.After(o.from.Add(2 * time.Second)):
		o.late.Add(1)
	}
	o.told.Add(1)
	return Answer{Kind: Limited, Wait: time.Until(o.over)}
}

// session makes so many calls as a job does: what is held ends its attempt, and another one begins when it is time. It
// reports whether an attempt began in the outage.
func (o *outage) session(t *testing.T, w single, calls int) (began bool) {
	for made := 0; made < calls; {
		err := w.Admit("m", time.Minute)
		if now := time.Now(); err == nil && now.After(o.from.Add(2*time.Second)) && now.Before(o.over) {
			began = true
		}
		for arrived := time.Now(); err == nil && made < calls; {
			var pass Pass
			if pass, err = w.Acquire(t.Context(), "m", arrived, time.Minute); err != nil {
				break
			}
			answer := o.call()
			time.Sleep(time.Second)
			if pass.Done("m", answer); answer.Kind == Served {
				made, arrived = made+1, time.Now()
			}
		}
		if h, ok := errors.AsType[*HeldError](err); ok {
			time.Sleep(time.Until(h.Until))
		} else if err != nil {
			t.Error(err)
			return began
		}
	}
	return began
}

// A hundred sessions of two workers are told "in two hours" while they work: no call and no session begins until then, and
// afterwards each goes on, within minutes, by a pace that is hardly refused.
func TestAFleetGoesOnAfterTwoHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		api := &outage{stub: stub{api: api{rate: 10, size: 20, after: true, at: begin}}, from: begin.Add(time.Minute), over: begin.Add(time.Minute + 2*time.Hour)}
		workers := []single{alone("a"), alone("a")}
		ctx, stop := context.WithCancel(t.Context())
		var sharing, fleet sync.WaitGroup
		for i, w := range workers {
			sharing.Go(func() {
				for {
					select {
					case <-w.News():
						workers[1-i].Import(w.Export())
					case <-ctx.Done():
						return
					}
				}
			})
		}
		ends := make([]time.Time, 100)
		for i := range ends {
			fleet.Go(func() {
				if api.session(t, workers[i%2], 20) {
					t.Error("an attempt began in the two hours")
				}
				ends[i] = time.Now()
			})
		}
		time.Sleep(time.Until(api.over))
		api.begin()
		fleet.Wait()
		stop()
		sharing.Wait()
		last, refused := slices.MaxFunc(ends, time.Time.Compare).Sub(api.over), api.refused()
		t.Logf("%d calls in the two hours; afterwards %d, the last %v later, %.1f %% refused", api.told.Load(), api.asked, last, 100*refused)
		if api.told.Load() == 0 || api.late.Load() > 0 {
			t.Errorf("in the two hours there were %d calls, %d of them late", api.told.Load(), api.late.Load())
		}
		if need := time.Duration(api.served/10) * time.Second; last > need+need/5+time.Minute || refused > 0.05 {
			t.Errorf("afterwards the last session ended after %v, for %d calls, and %.1f %% were refused", last, api.served, 100*refused)
		}
	})
}
