// Package standing says what keeps a job where it is, and which jobs compete with it to be
// claimed next.
package standing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/election"
	"github.com/penstock-run/penstock/jobs/hold"
	"github.com/penstock-run/penstock/jobs/internal/lane"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/permit"
	"github.com/penstock-run/penstock/jobs/presence"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

// readsAtOnce is how many records are read at the same time.
const readsAtOnce = 16

// Standings are those of the jobs of a pool. The methods may be called from any goroutine.
type Standings struct {
	Conn     *wire.Conn
	Names    subject.Names
	Records  record.Store
	Holds    hold.Holds
	Permits  permit.Permits
	Lanes    *lane.Lanes
	Workers  presence.Workers
	Election *election.Election
}

// Unfinished knows all jobs that have not ended, as the leader does.
type Unfinished interface {
	// Compete counts the jobs that compete with one to be claimed.
	Compete(Competition) why.Facts
}

// A Competition is what [Unfinished] does not know of a job that is pending.
type Competition struct {
	Job     jobs.Record
	Caps    schedule.Caps
	Lease   time.Duration
	Workers []why.Worker
	// Order has the ids of the jobs that have a message in the lanes that are served
	// before the job's, and in its own, of its class: in the order of their messages.
	Order map[string][]string
	// Paused reports whether the queue or the batch of a job is paused.
	Paused func(jobs.Record) bool
}

// Why says what keeps a job where it is. Where open is nil, it reads all records to find the
// jobs that compete with it.
func (s Standings) Why(ctx context.Context, id string, open Unfinished) (why.Standing, error) {
	e, err := s.Records.Find(ctx, id)
	if err != nil {
		return why.Standing{}, err
	}
	f, err := s.facts(ctx, e, open)
	if err != nil {
		return why.Standing{}, fmt.Errorf("why job %s is %s: %w", e.ID, e.State, err)
	}
	return why.Of(f), nil
}

func (s Standings) facts(ctx context.Context, e record.Entry, open Unfinished) (why.Facts, error) {
	f := why.Facts{Record: e.Record, Written: e.At}
	// All at once, since each is a round trip or more.
	g, asking := errgroup.WithContext(ctx)
	if e.Attempt > 0 && e.Repo != "" {
		g.Go(func() (err error) { f.Overlaps, err = s.overlaps(asking, e.ID); return err })
	}
	if e.State == jobs.Finished {
		err := g.Wait()
		return f, err
	}
	g.Go(func() (err error) { f.Now, err = s.Records.Now(asking); return err })
	g.Go(func() (err error) { f.Lease, err = s.Lanes.Lease(asking, e.Class, e.Lane); return err })
	g.Go(func() (err error) { f.Queue, err = s.paused(asking, jobs.HoldQueue, e.Queue); return err })
	if e.Batch != "" {
		g.Go(func() (err error) { f.Batch, err = s.paused(asking, jobs.HoldBatch, e.Batch); return err })
	}
	if e.State == jobs.Pending {
		g.Go(func() (err error) { f.Workers, err = s.Workers.List(asking); return err })
	}
	err := g.Wait()
	switch {
	case err != nil:
		return f, err
	case e.Dependent():
		return f, s.dependsOn(ctx, e, &f)
	case e.State == jobs.Pending && open != nil:
		return f, s.aheadOpen(ctx, e, open, &f)
	case e.State == jobs.Pending:
		return f, s.ahead(ctx, e, &f)
	}
	return f, nil
}

// overlaps returns the jobs that a job overlaps with, but for those that ended without success: nothing
// of these is merged, unless they are run again.
func (s Standings) overlaps(ctx context.Context, id string) ([]jobs.Overlap, error) {
	found, err := overlap.Of(s.Workers).Found(ctx, id)
	if err != nil {
		return nil, err
	}
	merged := make([]bool, len(found))
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i, o := range found {
		g.Go(func() error {
			other, err := s.Records.Read(reading, o.Job)
			if errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrPurged) {
				return nil
			}
			merged[i] = other.State != jobs.Finished || other.Outcome == jobs.Success
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []jobs.Overlap
	for i, o := range found {
		if merged[i] {
			all = append(all, o)
		}
	}
	return all, nil
}

func (s Standings) paused(ctx context.Context, kind jobs.HoldKind, name string) (*why.Pause, error) {
	h, err := s.Holds.Get(ctx, kind, name)
	if err != nil || h == nil || h.Cancel {
		return nil, err
	}
	return &why.Pause{By: h.By, At: h.At, Until: h.Until}, nil
}

// dependsOn finds the jobs that e waits for.
func (s Standings) dependsOn(ctx context.Context, e record.Entry, f *why.Facts) error {
	ids, failed, err := s.Records.Dependencies(ctx, e.Record)
	if err != nil || failed != "" { // it ends as soon as a process looks
		return err
	}
	for _, id := range ids {
		on, err := s.Records.Read(ctx, id)
		if err != nil {
			return err
		}
		f.Open = append(f.Open, on.Record)
	}
	return nil
}

// aheadOpen is [Standings.ahead] with the jobs that open knows. There is a leader, which is who asks.
func (s Standings) aheadOpen(ctx context.Context, me record.Entry, open Unfinished, f *why.Facts) error {
	in := Competition{Job: me.Record, Lease: f.Lease, Workers: f.Workers, Order: map[string][]string{}}
	var holds []jobs.Hold
	g, asking := errgroup.WithContext(ctx)
	g.Go(func() (err error) { in.Caps, err = s.Permits.Caps(asking); return err })
	g.Go(func() (err error) { holds, err = s.Holds.List(asking); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	in.Paused = func(rec jobs.Record) bool { return hold.Pauses(holds, rec) }
	for _, lane := range subject.Lanes[:slices.Index(subject.Lanes, me.Lane)+1] {
		if _, err := s.Lanes.Lease(ctx, me.Class, lane); err != nil {
			return err
		}
		for m, err := range s.Conn.Scan(ctx, wire.Range{Stream: subject.QueueStream(me.Class, lane), Subject: s.Names.QueueAll(me.Class, lane)}) {
			if err != nil {
				return err
			}
			in.Order[lane] = append(in.Order[lane], m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		}
	}
	found := open.Compete(in)
	f.Ahead, f.Rivals, f.Below, f.Caps = found.Ahead, found.Rivals, found.Below, found.Caps
	return nil
}
