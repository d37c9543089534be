package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/recovery"
)

// How often the leader searches all records for steps that a crash left
// undone, through the sessions of parked jobs for answers that had no effect,
// through everything for what belongs to jobs that are no longer kept, and
// through the artifacts for what was replaced.
const (
	repairEvery = 5 * time.Second
	hearEvery   = time.Minute
	sweepEvery  = time.Hour
	tidyEvery   = 10 * time.Minute
	auditAgain  = 2 * time.Minute
)

// A leader is the one dispatcher of a pool that admits jobs to their queues and repairs
// what a crash left undone.
type leader struct{ d *Dispatcher }

// run leads until ctx ends: it keeps the index up to date.
func (l leader) run(ctx context.Context) {
	arrived := newArrivals(time.Now())
	if leading := l.d.cfg.Hooks.Leading; leading != nil {
		leading(true)
		defer leading(false)
	}
	l.relearn(ctx)
	var upkeep sync.WaitGroup
	upkeep.Go(func() { l.upkeep(ctx) })
	for _, duty := range l.d.cfg.Duties {
		upkeep.Go(func() { duty(ctx) })
	}
	defer upkeep.Wait()
	for ctx.Err() == nil {
		if err := l.keep(ctx, arrived); err != nil && ctx.Err() == nil {
			l.d.log.Warn("keep the index of jobs", "err", err)
			pause.For(ctx, time.Second)
		}
	}
}

// upkeep does what is due from time to time.
func (l leader) upkeep(ctx context.Context) {
	repair, sweep, tidy := time.NewTicker(repairEvery), time.NewTicker(sweepEvery), time.NewTicker(tidyEvery)
	defer repair.Stop()
	defer sweep.Stop()
	defer tidy.Stop()
	// What may have been under way when it was looked for first is lost by then.
	again := time.NewTimer(auditAgain)
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-repair.C:
			err = l.d.Schedules().repair(ctx)
		case <-again.C:
			l.relearn(ctx)
		case <-sweep.C:
			l.relearn(ctx) // first, because it needs what is swept
			if _, err = l.d.cfg.Queue.Sweep(ctx); err != nil {
				err = fmt.Errorf("sweep expired entries: %w", err)
			}
		case <-tidy.C:
			_, err = l.d.cfg.Store.Sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			l.d.log.Warn("upkeep", "err", err)
		}
	}
}

// keep builds the index and updates it until it has to be rebuilt: after an error,
// or when the caps have changed. Once it is built, it answers the questions of others.
func (l leader) keep(ctx context.Context, arrived *arrivals) error {
	caps, err := l.d.cfg.Queue.Permits().Caps(ctx)
	if err != nil {
		return err
	}
	b := &index{
		connects: l.d.cfg.Queue.Reconnects(),
		queue:    l.d.cfg.Queue, log: l.d.log, wakeAnswered: l.wakeAnswered, repaired: l.d.cfg.Hooks.Repaired,
		caps: caps, open: newUnfinished(caps), lanes: map[string]bool{}, ready: map[string]bool{},
		dependents: map[string][]string{}, recheck: map[string]bool{}, asking: map[string]jobs.Record{},
	}
	asked := questions{queue: l.d.cfg.Queue, log: l.d.log, all: catalog.NewIndex(), open: b.open, read: newProgress()}
	ctx, stop := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	var failed error
	step := func() {
		var again bool
		if again, failed = b.step(ctx); failed != nil || again {
			stop()
		}
	}
	answer := sync.OnceFunc(func() {
		serving.Go(func() { asked.answer(ctx) })
		// To build the index takes several times the memory that it has in the end, and the
		// leader may be idle from then on.
		debug.FreeOSMemory()
	})
	read := 0
	for change, err := range l.d.cfg.Queue.Changes(ctx, func() { answer(); step() }) {
		rec := change.Record
		if hook := l.d.cfg.Hooks.Submitted; err == nil && hook != nil && !change.Gone && arrived.first(rec, time.Now()) {
			hook(rec)
		}
		if err == nil && !change.Gone {
			err = b.enter(ctx, rec)
		}
		if err != nil {
			return err
		}
		asked.note(change)
		if changed := l.d.cfg.Hooks.Changed; changed != nil {
			changed(change)
		}
		if read++; read%planEvery == 0 {
			step()
		}
		if failed != nil || ctx.Err() != nil {
			break
		}
	}
	return failed
}

// Audit compares the records with the sessions and the results, and returns what
// the records have lost. With fix it repairs them, and no job that has a result
// runs again.
func (d *Dispatcher) Audit(ctx context.Context, fix bool) ([]recovery.Loss, error) {
	return d.cfg.Queue.Recovery().Audit(ctx, fix, d.cfg.Log.Lasts, d.cfg.Store.LastResult)
}

// relearn repairs the records before any job is admitted by them.
func (l leader) relearn(ctx context.Context) {
	for ctx.Err() == nil {
		lost, err := l.d.Audit(ctx, true)
		if len(lost) > 0 {
			l.d.log.Error("the broker's store has lost its last writes: records are older than their sessions",
				"jobs", len(lost), "hint", "check the broker's disk; the records are repaired, and finished jobs do not run again")
		}
		for _, loss := range lost {
			l.d.log.With(loss.Record.LogFields()...).Warn("record was lost", "was", loss.Was, "is", loss.Is, "outcome", loss.Result, "known_by", loss.From, "repaired", loss.Fixed)
		}
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			l.d.log.Error("compare the records with the sessions", "err", err)
		}
		if !errors.Is(err, jobs.ErrUnavailable) {
			return // what is lost must not keep all others
		}
		pause.For(ctx, time.Second)
	}
}

// wakeAnswered wakes a parked job whose answer was accepted by a process that died
// before it could.
func (l leader) wakeAnswered(ctx context.Context, rec jobs.Record) error {
	unheard, err := l.d.cfg.Log.Unheard(ctx, rec)
	if err != nil || !unheard {
		return err
	}
	past, err := l.d.cfg.Log.Past(ctx, rec.Session, rec.ID)
	if err != nil {
		return err
	}
	return l.d.wake(ctx, rec, past)
}
