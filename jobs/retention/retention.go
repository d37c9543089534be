// Package retention removes finished jobs sooner than the broker would, where a rule says so, and
// ends purges that were interrupted.
//
//	change of a record ─▶ Note ─▶ due times ─(where this process leads)─▶ Run ─▶ purge
//
// The broker removes records, events and artifacts when they are as old as the pool keeps any. A
// [Rule] keeps what belongs to some jobs for less: when its time is over, all of such a job goes,
// as by a purge. So a job is there as a whole, or not at all, wherever a leader dies: the next
// one finds the mark of the purge on the record.
//
// A session goes as a whole, when the last of its jobs is due.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/purge"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

const (
	// every is how often it is looked for jobs that are due.
	every = 10 * time.Second
	// interrupted is for how long a purge may be under way before somebody else ends it.
	interrupted = 20 * time.Second
	// again is when a job is looked at again that could not be removed.
	again = time.Minute
	// later is the same for a session of which another job is still open.
	later = time.Hour
	// atOnce is how many jobs are removed at the same time.
	atOnce = 4
)

// Config is what a [Keeper] works with.
type Config struct {
	Queue   *queue.Queue
	Catalog *catalog.Catalog
	Purger  *purge.Purger
	Rules   Rules
	Pool    time.Duration // for which the broker keeps a job that no rule is about
	Logger  *slog.Logger
	Removed func(jobs int) // may be nil
}

// A Keeper knows when the jobs are due that rules are about. Other jobs cost it nothing. Its
// methods may be called from any goroutine.
type Keeper struct {
	cfg Config

	mu  sync.Mutex
	due map[uuid.UUID]uint32 // in seconds since 1970
	// busy are the sessions that are being removed.
	busy map[string]bool
}

// New returns a keeper that knows of no job. It does no I/O.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, due: map[uuid.UUID]uint32{}, busy: map[string]bool{}}
}

// Until returns when what the pool has of a job is removed; zero: it has not finished.
func (k *Keeper) Until(rec jobs.Record) time.Time {
	if rec.State != jobs.Finished || rec.Finished == nil {
		return time.Time{}
	}
	keep, found := k.cfg.Rules.Keep(rec)
	if !found || keep > k.cfg.Pool {
		keep = k.cfg.Pool
	}
	return rec.Finished.Add(keep)
}

// Note takes up a change of a record.
func (k *Keeper) Note(c record.Change) {
	id, err := uuid.Parse(c.ID)
	if err != nil {
		return
	}
	_, ruled := k.cfg.Rules.Keep(c.Record)
	switch {
	case c.Gone || c.Record.State != jobs.Finished:
		k.forget(id)
	case c.Record.Purging:
		k.set(id, time.Now().Add(interrupted))
	case ruled:
		k.set(id, k.Until(c.Record))
	}
}

func (k *Keeper) set(id uuid.UUID, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due[id] = uint32(min(max(at.Unix(), 0), math.MaxUint32)) // until the year 2106
}

func (k *Keeper) forget(id uuid.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.due, id)
}

// Run removes jobs when they are due, until ctx ends. It is for the leader alone.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.remove(ctx, time.Now())
		}
	}
}

// remove removes the jobs that are due at a time.
func (k *Keeper) remove(ctx context.Context, now time.Time) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, id := range k.overdue(now) {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := k.expire(ctx, id, now); err != nil && ctx.Err() == nil {
				k.set(id, now.Add(again))
				k.cfg.Logger.Warn("remove a job that is kept no longer", "job", id.String(), "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // each job has told its error
}

// begin reports whether the caller is the one to remove a session. It calls end then.
func (k *Keeper) begin(session string) (end func(), first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[session] {
		return nil, false
	}
	k.busy[session] = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.busy, session)
	}, true
}

func (k *Keeper) overdue(now time.Time) (ids []uuid.UUID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, at := range k.due {
		if int64(at) <= now.Unix() {
			ids = append(ids, id)
		}
	}
	return ids
}

// expire removes a job that is due, with all of its session, unless something is to be kept.
func (k *Keeper) expire(ctx context.Context, id uuid.UUID, now time.Time) error {
	rec, err := k.cfg.Purger.Find(ctx, id.String())
	if errors.Is(err, jobs.ErrNotFound) {
		k.forget(id)
		return nil
	}
	if err != nil {
		return err
	}
	end, first := k.begin(rec.Session)
	if !first {
		return nil // this job is looked at again the next time
	}
	defer end()
	all, err := k.cfg.Catalog.All(ctx, record.Filter{Session: rec.Session})
	if err != nil {
		return err
	}
	list := []jobs.Record{rec}
	until := k.until(rec, now)
	for _, other := range all {
		switch {
		case other.ID == rec.ID:
		case !rec.Purging:
			until = latest(until, k.until(other, now))
			list = append(list, other)
		case other.Purging: // together with this one
			list = append(list, other)
		}
	}
	if until.After(now) {
		k.set(id, until)
		return nil
	}
	if _, err := k.cfg.Purger.Session(ctx, rec.Session, list); err != nil {
		return err
	}
	for _, rec := range list {
		if gone, err := uuid.Parse(rec.ID); err == nil {
			k.forget(gone)
		}
	}
	if k.cfg.Removed != nil {
		k.cfg.Removed(len(list))
	}
	return nil
}

// until is when a job may go: one that is being purged at once, one that is open not for a while.
func (k *Keeper) until(rec jobs.Record, now time.Time) time.Time {
	switch at := k.Until(rec); {
	case rec.Purging:
		return now
	case at.IsZero():
		return now.Add(later)
	default:
		return at
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
