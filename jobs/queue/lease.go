package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/record"
)

// A Claim is the lease on a job: the right to run one attempt of it, for as
// long as it is kept. Its methods may be called from any goroutine.
type Claim struct {
	q        *Queue
	d        delivery.Delivery
	job      jobs.Job
	rec      jobs.Record // as claimed
	lease    time.Duration
	previous *jobs.Ended
	permits  []string // keys of the caps that it has one of
	claimed  uint64   // the revision that they are for

	busy           chan struct{} // held while the record is written; guards what follows
	held           record.Entry  // the record as this claim knows it
	good           time.Time     // when the last write that succeeded was sent
	cancelReported bool          // ErrCancelled has been returned
	done           bool          // the record says how the attempt ended
	ended          chan struct{} // closed with done

	spent  atomic.Pointer[jobs.Spent]   // what the attempt has used; nil: not reported
	stored atomic.Int64                 // bytes that the attempt has stored
	asks   atomic.Pointer[jobs.OpenAsk] // what its agent waits with; nil: nothing
	// progressed: the attempt has got further than any before it.
	progressed atomic.Bool
	renew      chan struct{} // has a value when that is to be written at once
}

// Record returns the record as the claim wrote it.
func (c *Claim) Record() jobs.Record { return c.rec }

// Job returns the job as its submitter wrote it, with the budget that holds for it now.
func (c *Claim) Job() jobs.Job { return c.rec.Allowed(c.job) }

// Epoch names this attempt: no other one of any job has the same.
func (c *Claim) Epoch() uint64 { return c.rec.Epoch }

// Previous says how the attempt before this one ended, if this claim found
// out: its worker was lost.
func (c *Claim) Previous() *jobs.Ended { return c.previous }

// Spend says what the attempt has used by now. It is written with each
// heartbeat and with the attempt's end; what was not written when a worker dies
// is lost.
func (c *Claim) Spend(s jobs.Spent) { c.spent.Store(&s) }

// Stored says that the attempt has stored some bytes more, or less where it has removed some. It is
// written as what it has used is.
func (c *Claim) Stored(bytes int64) { c.stored.Add(bytes) }

// Progressed says that the attempt has got further than any before it: workers that died under
// those do not count against the job any more. It is written at once, if there were any.
func (c *Claim) Progressed() {
	if c.progressed.Store(true); c.rec.Deaths > 0 {
		c.Renew()
	}
}

// Ask says what the agent waits with for an answer; nil is nothing. It is written
// as what it has used is.
func (c *Claim) Ask(open *jobs.OpenAsk) { c.asks.Store(open) }

// Renew has Keep write the next heartbeat at once.
func (c *Claim) Renew() {
	select {
	case c.renew <- struct{}{}:
	default: // it will
	}
}

// next is the record to write next, before what else changes in it. The
// caller holds busy.
func (c *Claim) next() record.Entry {
	e := c.held
	e.Asks = c.asks.Load()
	e.Stored = max(0, c.rec.Stored+c.stored.Load())
	if s := c.spent.Load(); s != nil {
		e.LastAttempt = *s
	}
	if c.progressed.Load() {
		e.Deaths = 0
	}
	return e
}

// Keep renews the lease until ctx ends or the attempt is settled, and then
// returns nil. It returns [jobs.ErrFenced] when the lease is lost, or could
// not be renewed in three quarters of its time: the agent must be killed at
// once. It returns [jobs.ErrCancelled] once when a cancel was asked for; call
// it again to hold the lease while the agent is ended.
func (c *Claim) Keep(ctx context.Context) error {
	rung, stop, err := c.q.conn.Notify(c.q.names.Control(c.rec.Tenant, c.rec.Session))
	if err != nil {
		return fmt.Errorf("keep job %s: %w", c.rec.ID, err)
	}
	defer stop()
	beat := time.NewTimer(c.untilBeat())
	defer beat.Stop()
	for renew := c.look; ; renew = c.beat {
		err := renew(ctx)
		if err == nil {
			err = c.wanted(ctx)
		}
		switch {
		case errors.Is(err, jobs.ErrFenced):
			hook(c.q.cfg.Hooks.LeaseLost, c.rec)
			return err
		case errors.Is(err, jobs.ErrCancelled):
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.ended:
			return nil
		case <-beat.C:
			beat.Reset(c.untilBeat())
		case <-rung:
		case <-c.renew:
		}
	}
}

// untilBeat is the time until the next heartbeat, at most a third of the lease. Those of all
// claims of a connection come at the same moments, four in that time, so that the broker writes
// many of them to the disk at once.
func (c *Claim) untilBeat() time.Duration {
	third := c.lease / 3
	return third - (time.Since(c.q.opened)+third)%(third/4)
}

// look does what the first heartbeat is for, without the write while the lease is fresh:
// it finds the cancel that was asked for before this process listened.
func (c *Claim) look(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	fresh := time.Since(c.good) < c.lease/6
	if !fresh {
		<-c.busy
		return c.beat(ctx)
	}
	defer func() { <-c.busy }()
	if c.done {
		return nil
	}
	try, cancel := context.WithTimeout(ctx, c.lease/6)
	defer cancel()
	if err := c.reread(try); errors.Is(err, jobs.ErrFenced) {
		return err
	}
	return nil // where the broker is away, the next heartbeat finds out
}

// beat renews the lease once. It returns ErrFenced when that cannot be done
// in time, and nil when ctx has ended.
func (c *Claim) beat(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-c.busy }()
	if c.done {
		return nil
	}
	// The monotonic clock of this process: whatever else happens, when this
	// time has come another worker may begin soon.
	end := c.good.Add(c.lease * 3 / 4)
	if wire.Fenced && !time.Now().Before(end) {
		return fmt.Errorf("job %s: %w: it could not be renewed for %s", c.rec.ID, jobs.ErrFenced, time.Since(c.good).Round(time.Millisecond))
	}
	if !wire.Fenced {
		end = time.Now().Add(time.Minute)
	}
	try, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for {
		next := c.next()
		next.Beat++
		sent := time.Now()
		next, err := c.q.put(try, next)
		if err == nil {
			c.held, c.good = next, sent
			// Only now: the record says that the message is ours. It need
			// not arrive, the next one will.
			_ = c.q.conn.NC.Publish(c.d.Reply, []byte("+WPI"))
			return nil
		}
		if isConflict(err) {
			err = c.reread(try)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, jobs.ErrFenced):
			return err
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jobs.ErrFull) && try.Err() == nil:
			pause.For(try, time.Second/2) // room may be made in time
		case try.Err() != nil:
			return fmt.Errorf("job %s: %w: it could not be renewed for %s", c.rec.ID, jobs.ErrFenced, time.Since(c.good).Round(time.Millisecond))
		default:
			return fmt.Errorf("job %s: %w: %w", c.rec.ID, jobs.ErrFenced, err)
		}
	}
}

// Assert renews the lease now and returns until when it certainly holds, by
// this process's monotonic clock. Call it right before something that cannot
// be taken back, and do that before the time is over. It returns
// [jobs.ErrFenced] when the lease is lost and [jobs.ErrCancelled] when a
// cancel was asked for: then do nothing.
func (c *Claim) Assert(ctx context.Context) (until time.Time, err error) {
	if err := c.beat(ctx); err != nil {
		return time.Time{}, err
	}
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
	defer func() { <-c.busy }()
	until = c.good.Add(c.lease * 3 / 4)
	switch {
	case c.done || !time.Now().Before(until):
		return time.Time{}, fmt.Errorf("job %s: %w", c.rec.ID, jobs.ErrFenced)
	case c.held.Cancel != nil:
		return time.Time{}, fmt.Errorf("job %s: %w", c.rec.ID, jobs.ErrCancelled)
	case ctx.Err() != nil: // the beat may have been left out
		return time.Time{}, context.Cause(ctx)
	}
	return until, nil
}

// wanted returns ErrCancelled the first time that the record asks for it. It is for Keep
// alone: whoever else has seen the cancel has not told the attempt.
func (c *Claim) wanted(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-c.busy }()
	if c.done || c.held.Cancel == nil || c.cancelReported {
		return nil
	}
	c.cancelReported = true
	return fmt.Errorf("job %s: %w", c.rec.ID, jobs.ErrCancelled)
}

// reread adopts what another process has written, if the attempt is still ours.
func (c *Claim) reread(ctx context.Context) error {
	e, err := c.q.Read(ctx, c.rec.ID)
	if errors.Is(err, jobs.ErrUnavailable) {
		return err
	}
	if err != nil || e.State != jobs.Executing || e.Epoch != c.rec.Epoch {
		return fmt.Errorf("job %s: %w", c.rec.ID, jobs.ErrFenced)
	}
	c.held = e
	return nil
}

// Settle writes how the attempt ended, then calls announce with the record as
// it stands now, and then lets go of the queue message. When it returns
// [jobs.ErrFenced] the attempt belonged to another worker already and must not
// be announced. An attempt that was cancelled meanwhile ends as cancelled.
// After another error Settle may be called again; otherwise the next claimer
// goes on where it stopped.
func (c *Claim) Settle(ctx context.Context, end jobs.Ended, announce func(ctx context.Context, rec jobs.Record) error) (jobs.Record, error) {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return c.rec, context.Cause(ctx)
	}
	defer func() { <-c.busy }()
	if err := c.commit(ctx, end); err != nil {
		return c.held.Record, fmt.Errorf("settle: %w", err)
	}
	c.forgo(ctx)
	rec := c.held.Record
	if announce != nil {
		if err := announce(ctx, rec); err != nil {
			return rec, fmt.Errorf("announce the end of job %s: %w", rec.ID, err)
		}
	}
	switch rec.State {
	case jobs.Finished:
		if err := c.q.conclude(ctx, rec); err != nil {
			return rec, err
		}
		// The verdict stands even if this fails. A broker that was killed may no
		// longer know which worker has the message, and answers nothing: it gives
		// it again, and the worker that gets it acknowledges it.
		_ = c.q.deliveries.Ack(ctx, c.d)
		return rec, nil
	case jobs.Delayed:
		if err := c.q.schedule(ctx, rec); err != nil {
			return rec, fmt.Errorf("schedule job %s: %w", rec.ID, err)
		}
		return rec, c.q.deliveries.Ack(ctx, c.d)
	}
	return rec, c.q.deliveries.Again(c.d)
}

// forgo gives the attempt's permits back once it has ended.
func (c *Claim) forgo(ctx context.Context) {
	c.q.Permits().GiveBack(ctx, c.permits, c.rec.ID, c.claimed)
	c.permits = nil
}

// commit is the write that decides.
func (c *Claim) commit(ctx context.Context, end jobs.Ended) error {
	for !c.done {
		if c.held.Cancel != nil { // also where the worker knows: the record names the canceller
			end = cancelled(c.held.Record)
		}
		now := time.Now()
		if end.Outcome != jobs.Success { // a back-off counts by the broker's clock, which ends it
			var err error
			if now, err = c.q.Now(ctx); err != nil {
				return err
			}
		}
		next := c.next()
		next.Record, _ = c.q.cfg.Bounds.After(next.Record, end, now)
		next, err := c.q.put(ctx, next)
		if isConflict(err) {
			if err = c.reread(ctx); err == nil {
				continue
			}
		}
		if errors.Is(err, jobs.ErrFenced) {
			hook(c.q.cfg.Hooks.LeaseLost, c.rec)
		}
		if err != nil {
			return err
		}
		c.held, c.done = next, true
		close(c.ended)
		hook(c.q.cfg.Hooks.Settled, next.Record)
	}
	return nil
}

// nudge is what a session's control subject carries to say that the record
// has changed.
type nudge struct {
	Kind string `json:"kind"`
	Job  string `json:"job"`
}

func (q *Queue) nudge(rec jobs.Record) error {
	body, err := json.Marshal(nudge{"cancel", rec.ID})
	if err != nil {
		return err
	}
	return q.conn.NC.Publish(q.names.Control(rec.Tenant, rec.Session), body)
}
