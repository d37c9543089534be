package standing

import (
	"context"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/hold"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

// A contenders is the jobs that compete to be claimed next.
type contenders struct {
	me     record.Entry
	caps   schedule.Caps
	all    []record.Entry
	ready  map[string]record.Entry // that could be claimed, but for their caps
	before map[string]bool         // of these, that are before me in my lane, or in one that I share workers with
	runs   map[string]bool         // that are executing
	f      *why.Facts
}

// ahead finds the jobs that are or may be claimed before one that is pending,
// and whether that one is not in its queue at all.
func (s Standings) ahead(ctx context.Context, me record.Entry, f *why.Facts) error {
	in := contenders{me: me, ready: map[string]record.Entry{}, before: map[string]bool{}, runs: map[string]bool{}, f: f}
	var holds []jobs.Hold
	var led bool
	g, asking := errgroup.WithContext(ctx)
	g.Go(func() (err error) { in.caps, err = s.Permits.Caps(asking); return err })
	g.Go(func() (err error) { in.all, err = s.Records.Entries(asking, record.Filter{}); return err })
	g.Go(func() (err error) { holds, err = s.Holds.List(asking); return err })
	g.Go(func() (err error) { led, err = s.Election.Led(asking); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	f.Stranded = !led
	for _, e := range in.all {
		in.runs[e.ID] = e.State == jobs.Executing
	}
	full, err := s.full(ctx, in)
	if err != nil {
		return err
	}
	for _, e := range in.all {
		lost := e.State == jobs.Executing && f.Now.Sub(e.At) >= f.Lease
		blocked := slices.ContainsFunc(in.caps.Of(e.Record), func(c schedule.Cap) bool { return full[c.Key] })
		if e.State == jobs.Pending && !blocked || lost {
			if !hold.Pauses(holds, e.Record) {
				in.enter(e)
			}
		}
	}
	for _, lane := range subject.Lanes {
		if err := s.aheadIn(ctx, lane, in); err != nil {
			return err
		}
		if lane == me.Lane {
			break
		}
	}
	return s.capped(ctx, in)
}

// enter notes a job that could be claimed.
func (in contenders) enter(e record.Entry) {
	in.ready[e.ID] = e
	both := func(w why.Worker) bool { return w.Serves(e.Record) && w.Serves(in.me.Record) }
	switch {
	case !slices.ContainsFunc(in.f.Workers, both):
	case e.Lane > in.me.Lane:
		in.f.Below++
		in.before[e.ID] = true
	case e.Class != in.me.Class:
		in.f.Rivals++
		in.before[e.ID] = true
	}
}

// aheadIn is ahead in one lane, whose order is the broker's. What is not there
// yet comes after that, in the order of shares.
func (s Standings) aheadIn(ctx context.Context, lane string, in contenders) error {
	if _, err := s.Lanes.Lease(ctx, in.me.Class, lane); err != nil {
		return err
	}
	before, there := true, map[string]bool{}
	for m, err := range s.Conn.Scan(ctx, wire.Range{Stream: subject.QueueStream(in.me.Class, lane), Subject: s.Names.QueueAll(in.me.Class, lane)}) {
		if err != nil {
			return err
		}
		id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		there[id] = true
		if id == in.me.ID {
			before, in.f.Stranded = false, false
			continue
		}
		// The broker redelivers what its worker lost before it delivers more.
		if e, ok := in.ready[id]; ok && (before || e.State == jobs.Executing) {
			in.f.Ahead++
			in.before[id] = true
		}
	}
	if before {
		in.backlog(lane, there)
	}
	return nil
}

// backlog is aheadIn for the jobs of a lane that have no message. Whose turn
// it is only the leader knows; this is the order from the first turn on.
func (in contenders) backlog(lane string, there map[string]bool) {
	plan := schedule.New(nil)
	for id, e := range in.ready {
		if e.Class == in.me.Class && e.Lane == lane && e.State == jobs.Pending && !there[id] {
			plan.Set(e.Record, schedule.Waiting)
		}
	}
	if lane == in.me.Lane {
		plan.Set(in.me.Record, schedule.Waiting) // also if a cap is in its way
	}
	for _, rec := range plan.Next(func(jobs.Record) int { return math.MaxInt }) {
		if rec.ID == in.me.ID {
			return
		}
		in.f.Ahead++
		in.before[rec.ID] = true
	}
}

// full returns the keys of the caps that have no permit left.
func (s Standings) full(ctx context.Context, in contenders) (map[string]bool, error) {
	most := map[string]int{}
	for _, e := range in.all {
		if e.State == jobs.Pending {
			for _, c := range in.caps.Of(e.Record) {
				most[c.Key] = c.Most
			}
		}
	}
	full := map[string]bool{}
	for key, n := range most {
		running, err := s.running(ctx, key, in)
		if err != nil {
			return nil, err
		}
		full[key] = running >= n
	}
	return full, nil
}

// running is how many jobs run that have a permit of a cap.
func (s Standings) running(ctx context.Context, key string, in contenders) (int, error) {
	holders, err := s.Permits.Holders(ctx, key)
	n := 0
	for _, h := range holders {
		if in.runs[h.Job] {
			n++
		}
	}
	return n, err
}

// capped says of the caps that bound a job how they are used.
func (s Standings) capped(ctx context.Context, in contenders) error {
	for _, c := range in.caps.Of(in.me.Record) {
		running, err := s.running(ctx, c.Key, in)
		if err != nil {
			return err
		}
		use := why.Cap{Key: c.Key, Most: c.Most, Running: running}
		for id, e := range in.ready {
			behind := e.Class == in.me.Class && e.Lane == in.me.Lane && !in.before[id]
			if e.State == jobs.Pending && !behind && slices.Contains(in.caps.Of(e.Record), c) {
				use.Before++
			}
		}
		in.f.Caps = append(in.f.Caps, use)
	}
	return nil
}
