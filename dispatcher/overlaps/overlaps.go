// Package overlaps tells jobs that run which others change the same files.
//
//	what workers have seen ──Since──▶ works by file ──With──▶ noted for "why", told to both sessions
//
// The leader runs it. What was noted is what the next leader knows, so an overlap is told once; a leader
// that is killed between telling and noting has it told twice. A job is compared with those that have
// not ended, and with those that have succeeded, whose changes wait to be merged.
package overlaps

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/session"
)

const (
	every = 2 * time.Second
	// maxWorks bounds what the leader knows: the oldest are forgotten first.
	maxWorks = 10_000
	// maxTold bounds the jobs that one job is told of.
	maxTold = 20
)

// Config is what the leader needs.
type Config struct {
	Store  overlap.Store
	Record func(ctx context.Context, id string) (jobs.Record, error)
	Append func(ctx context.Context, src session.Source, e jobs.Event) (jobs.Event, error)
	Logger *slog.Logger
}

// A Watch finds the overlaps of a pool.
type Watch struct{ cfg Config }

// New returns what finds the overlaps of a pool. It does no I/O.
func New(cfg Config) *Watch { return &Watch{cfg} }

// Run finds overlaps until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var k *known
	var at overlap.Cursor
	for ok := true; ok; ok = pause.For(ctx, every) {
		var err error
		if k == nil {
			k, err = w.remember(ctx)
		}
		if err == nil {
			at, err = w.cfg.Store.Since(ctx, at, func(work overlap.Work) { k.add(work) })
		}
		for _, work := range k.due() {
			// One that fails is looked at again, and keeps no other from it.
			if failed := w.look(ctx, k, work); failed != nil {
				err = failed
			} else {
				k.done(work.Job)
			}
		}
		if err != nil && ctx.Err() == nil {
			w.cfg.Logger.Warn("look for jobs that change the same files", "err", err)
		}
	}
}

// remember returns what leaders before have noted.
func (w *Watch) remember(ctx context.Context) (*known, error) {
	k := newKnown()
	err := w.cfg.Store.All(ctx, k.tell)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// look compares what a job has changed by now with what others have.
func (w *Watch) look(ctx context.Context, k *known, work overlap.Work) error {
	var own *jobs.Record // read when there is something to tell
	for _, id := range k.beside(work) {
		other := k.works[id]
		found, ok := work.With(other)
		back, _ := other.With(work)
		if !ok || k.told(work.Job, found) && k.told(id, back) {
			continue
		}
		if own == nil {
			rec, counts, err := w.record(ctx, work.Job)
			if err != nil || !counts {
				return err
			}
			own = &rec
		}
		rec, counts, err := w.record(ctx, id)
		if err == nil && counts {
			err = errors.Join(w.tell(ctx, k, *own, found), w.tell(ctx, k, rec, back))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record returns the record of a job, and whether its changes matter to others.
func (w *Watch) record(ctx context.Context, id string) (rec jobs.Record, counts bool, err error) {
	rec, err = w.cfg.Record(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) {
		return rec, false, nil
	}
	return rec, err == nil && (rec.State != jobs.Finished || rec.Outcome == jobs.Success), err
}

// tell tells a job's session, if the job has not ended and does not know it, and notes it.
func (w *Watch) tell(ctx context.Context, k *known, rec jobs.Record, found jobs.Overlap) error {
	if k.told(rec.ID, found) {
		return nil
	}
	if rec.State != jobs.Finished {
		src := session.Source{Job: rec.ID, Session: rec.Session}
		if _, err := w.cfg.Append(ctx, src, event.New(event.OverlapFound(found))); err != nil {
			return err
		}
	}
	if err := w.cfg.Store.Note(ctx, rec.ID, found); err != nil {
		return err
	}
	k.tell(rec.ID, found)
	return nil
}
