// Package sharedlimits tells the workers of a pool what one of them has heard of the limits
// of a model API, and ends attempts that would wait for them for too long.
//
//	governor of a gate ─ news ─▶ Share ──▶ broker ──▶ Share of the other workers ─▶ their governors
//	job ─▶ Admit: newest state, then the governor ─▶ begins, or waits in its queue
//
// While the broker is away each worker goes by what it hears itself.
package sharedlimits

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/ratelimit"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/governor"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

const (
	every    = 5 * time.Second // that the state of others is read
	least    = time.Second     // between two reports
	patience = 2 * time.Second // that the broker has for an answer
)

// Store is that of the pool; see [ratelimit.Store].
type Store interface {
	Get(ctx context.Context, key string, now time.Time) (ratelimit.State, error)
	Put(ctx context.Context, mine ratelimit.State, now time.Time) (ratelimit.State, error)
}

// Admit reports whether a job of a queue may begin whose calls go through a gate, with a model;
// empty: that of its agent. The error is how its attempt ends where it may not.
func Admit(ctx context.Context, s Store, g *gate.Gate, queue, model string) error {
	if g == nil {
		return nil
	}
	keys := g.Governors(queue)
	for _, k := range keys {
		read(ctx, s, k)
	}
	err := g.Admit(queue, model)
	if h, ok := errors.AsType[*gate.Hold](err); ok {
		return Ended(h, time.Now())
	}
	for _, k := range keys {
		publish(ctx, s, k) // that this one tries the key, if it does
	}
	return err
}

// Ended is how an attempt ends that a gate holds for too long: its job waits, which is
// counted against nothing.
func Ended(h *gate.Hold, now time.Time) error {
	reason := jobs.QuotaWaiting
	if h.Refused != "" {
		reason = jobs.KeyRefused
	}
	end := reason.Ended(h.Error())
	end.Wait = max(h.Until.Sub(now), time.Second)
	return &verdict.EndedError{Ended: end}
}

// Share exchanges what the governors of gates know with the other workers until ctx ends, also those
// of keys that come later. Watch, which may be nil, is told how each key of an API is used, every few seconds.
func Share(ctx context.Context, s Store, gates map[string]*gate.Gate, watch func(api string, now gate.Standing)) {
	var all sync.WaitGroup
	for api, g := range gates {
		all.Go(func() {
			for ctx.Err() == nil {
				shareKeys(ctx, s, g, func(now gate.Standing) {
					if watch != nil {
						watch(api, now)
					}
				})
			}
		})
	}
	all.Wait()
}

// shareKeys shares until the gate has other keys. Those that are gone must not look as if they were still
// refused, so watch is told that nothing is known of any.
func shareKeys(ctx context.Context, s Store, g *gate.Gate, watch func(gate.Standing)) {
	keys, changed := g.AllGovernors()
	sharing, stop := context.WithCancel(ctx)
	defer stop()
	var each sync.WaitGroup
	for _, k := range keys {
		each.Go(func() { share(sharing, s, k, watch) })
	}
	select {
	case <-ctx.Done():
	case <-changed:
	}
	stop()
	each.Wait()
	for _, k := range keys {
		watch(gate.Standing{Key: k.Standing().Key})
	}
}

func share(ctx context.Context, s Store, g *governor.Governor, watch func(gate.Standing)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	var news <-chan struct{} // nil for a while after each report
	for {
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			news = g.News()
		case <-news:
			publish(ctx, s, g)
			news = nil
			quiet.Reset(least)
		case <-tick.C:
			switch now := g.Standing(); {
			case g.Due():
				publish(ctx, s, g)
			case now.Used:
				read(ctx, s, g)
			}
		}
		watch(g.Standing())
	}
}

// read takes over what the others know. If the broker is away, nothing changes.
func read(ctx context.Context, s Store, g *governor.Governor) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if state, err := s.Get(ctx, g.ID(), time.Now()); err == nil {
		g.Import(state)
	}
}

// publish tells the others what this worker knows. If the broker is away, the next news
// have it, too.
func publish(ctx context.Context, s Store, g *governor.Governor) {
	mine := g.Export()
	if len(mine.Holds) == 0 && len(mine.Uses) == 0 && mine.Changed.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if state, err := s.Put(ctx, mine, time.Now()); err == nil {
		g.Import(state)
	} else {
		g.Unheard()
	}
}
