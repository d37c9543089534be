package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

// Each lane of a class has as many jobs ready as slots serve the class, and at
// least leastReady. Jobs that are ready are claimed before those that become
// ready later, whatever their owner.
const leastReady = 16

// planEvery is after how many records jobs are admitted while a new leader
// still reads those that there are.
const planEvery = 10_000

// admitAtOnce is how many messages may be under way.
const admitAtOnce = 16

// An index is what the leader knows of all jobs that have not ended. It is built
// from one watch over the records, and dropped when the leadership ends.
type index struct {
	queue *queue.Queue
	log   *slog.Logger
	// wakeAnswered wakes a parked job whose answer is in its session.
	wakeAnswered func(context.Context, jobs.Record) error
	repaired     func(jobs.Record) // may be nil

	connects uint64 // how often this process had lost the broker when the index was begun
	caps     schedule.Caps
	open     *unfinished
	lanes    map[string]bool // that were looked into
	ready    map[string]bool // had a message when their lane was looked into
	// dependents has the jobs by the one that they wait for; recheck has those
	// for which one has ended.
	dependents map[string][]string
	recheck    map[string]bool
	// asking are the jobs that are parked with a question.
	asking       map[string]jobs.Record
	workers      []why.Worker
	workersRead  time.Time // when the workers were asked for last
	sessionsRead time.Time // when the sessions of asking were last looked at
}

// enter notes what a record says now.
func (b *index) enter(ctx context.Context, rec jobs.Record) error {
	delete(b.asking, rec.ID)
	if rec.State == jobs.Pending {
		return b.pending(ctx, rec)
	}
	delete(b.ready, rec.ID)
	if rec.State == jobs.Executing {
		b.open.set(rec, schedule.Running)
		return nil
	}
	b.open.leave(rec.ID, b.moves(rec))
	switch {
	case rec.State == jobs.Finished:
		for _, id := range b.dependents[rec.ID] {
			b.recheck[id] = true
		}
		delete(b.dependents, rec.ID)
	case rec.Dependent():
		b.recheck[rec.ID] = true
	case rec.State == jobs.Delayed && rec.NotBefore != nil:
		b.schedule(ctx, rec)
	case rec.Asking() && rec.NotBefore != nil:
		b.asking[rec.ID] = rec
		b.schedule(ctx, rec)
	}
	return nil
}

// moves says from when on a job that is neither pending nor executing should have been
// brought on; nil: it has ended, or waits for others.
func (b *index) moves(rec jobs.Record) *moving {
	switch {
	case rec.State == jobs.Finished || rec.Dependent():
		return nil
	case rec.State == jobs.Delayed && rec.NotBefore != nil:
		return &moving{since: due(rec)}
	case rec.Asking() && rec.NotBefore != nil:
		return &moving{since: *rec.NotBefore}
	case rec.State == jobs.Delayed || rec.Hold != "":
		return &moving{since: time.Now(), batch: rec.Batch}
	}
	return nil
}

// schedule sets the timer of a job that an attempt has put off: workers with a
// role of their own may not. A job without an attempt was put off by an operator,
// who may. If that fails, repair brings the job on, only later.
func (b *index) schedule(ctx context.Context, rec jobs.Record) {
	if rec.Attempt == 0 {
		return
	}
	if err := b.queue.Enqueue(ctx, rec); err != nil && ctx.Err() == nil {
		b.log.With(rec.LogFields()...).Warn("schedule", "err", err)
	}
}

// due is when a delayed job should have been brought on. A back-off is never
// longer than that, though the broker's clock was ahead when it began.
func due(rec jobs.Record) time.Time {
	wait := time.Until(*rec.NotBefore)
	if rec.Attempt > 0 {
		wait = min(wait, rec.PutOff(time.Now())) // it was written just now
	}
	return time.Now().Add(wait)
}

// pending puts a job into the plan. What it was before does not matter: one
// that has a message already is admitted once more, and nothing comes of it.
func (b *index) pending(ctx context.Context, rec jobs.Record) error {
	if lane := rec.Class + "." + rec.Lane; !b.lanes[lane] {
		ids, err := b.queue.Admitted(ctx, rec.Class, rec.Lane)
		if err != nil {
			return err
		}
		b.lanes[lane] = true
		for _, id := range ids {
			b.ready[id] = true
		}
	}
	state := schedule.Waiting
	if b.ready[rec.ID] {
		delete(b.ready, rec.ID)
		state = schedule.Ready
	}
	b.open.set(rec, state)
	return nil
}

// step does the pending work once the index has all records. Again says that the
// index must be rebuilt.
func (b *index) step(ctx context.Context) (again bool, err error) {
	if b.queue.Reconnects() != b.connects {
		return true, nil // a broker that died may have lost messages of lanes
	}
	if b.workersRead.IsZero() { // without them it is not known how many jobs to admit
		if err := b.readWorkers(ctx); err != nil {
			return false, err
		}
	}
	if err := errors.Join(b.depend(ctx), b.listen(ctx), b.admit(ctx)); err != nil {
		return false, err
	}
	if time.Since(b.workersRead) < repairEvery {
		return false, nil
	}
	if err := b.readWorkers(ctx); err != nil {
		return false, err
	}
	return b.look(ctx)
}

func (b *index) readWorkers(ctx context.Context) (err error) {
	b.workersRead = time.Now()
	b.workers, err = b.queue.Workers().List(ctx)
	return err
}

// listen looks now and then for answers whose job was not woken.
func (b *index) listen(ctx context.Context) error {
	if time.Since(b.sessionsRead) < hearEvery {
		return nil
	}
	b.sessionsRead = time.Now()
	for _, rec := range b.asking {
		if err := b.wakeAnswered(ctx, rec); err != nil {
			return fmt.Errorf("look for answers to job %s: %w", rec.ID, err)
		}
	}
	return nil
}

// depth is how many jobs of a lane may be ready.
func (b *index) depth(rec jobs.Record) int {
	slots := 0
	for _, w := range b.workers {
		if w.Serves(rec) {
			slots += w.Slots
		}
	}
	return max(leastReady, slots)
}

// admit sends the messages of the jobs that are next.
func (b *index) admit(ctx context.Context) error {
	next := b.open.next(b.depth)
	// One after the other within a lane: the order is the message's.
	var g errgroup.Group
	g.SetLimit(admitAtOnce)
	for _, lane := range byLane(next) {
		g.Go(func() error {
			for _, rec := range lane {
				if err := b.queue.Admit(ctx, rec); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// byLane takes apart what is in the order of lanes.
func byLane(list []jobs.Record) (lanes [][]jobs.Record) {
	for i, rec := range list {
		if i == 0 || rec.Class != list[i-1].Class || rec.Lane != list[i-1].Lane {
			lanes = append(lanes, nil)
		}
		lanes[len(lanes)-1] = append(lanes[len(lanes)-1], rec)
	}
	return lanes
}

// depend looks at the jobs for which a job that they wait for has ended.
func (b *index) depend(ctx context.Context) error {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(admitAtOnce)
	for id := range b.recheck {
		g.Go(func() error {
			open, err := b.queue.Depend(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			for _, on := range open {
				if !slices.Contains(b.dependents[on], id) {
					b.dependents[on] = append(b.dependents[on], id)
				}
			}
			return err
		})
	}
	err := g.Wait()
	clear(b.recheck)
	return err
}

// look finds what should have moved by itself and has not, and brings it on.
func (b *index) look(ctx context.Context) (again bool, err error) {
	caps, err := b.queue.Permits().Caps(ctx)
	if err != nil || !slices.Equal(caps, b.caps) {
		return err == nil, err
	}
	holds, err := b.queue.Holds().List(ctx)
	if err != nil {
		return false, err
	}
	late := b.open.late(repairEvery, holds)
	if len(late) == 0 {
		return false, nil
	}
	stranded, err := b.queue.Stranded(ctx, late...)
	if err != nil {
		return false, fmt.Errorf("look for stranded jobs: %w", err)
	}
	for _, rec := range stranded {
		if err := b.repair(ctx, rec); err != nil {
			return false, fmt.Errorf("repair job %s: %w", rec.ID, err)
		}
	}
	return false, nil
}

func (b *index) repair(ctx context.Context, rec jobs.Record) error {
	var err error
	if rec.State == jobs.Pending {
		err = b.queue.Admit(ctx, rec)
	} else {
		err = b.queue.Enqueue(ctx, rec)
	}
	if err != nil {
		return err
	}
	b.log.With(rec.LogFields()...).Info("repaired", "state", rec.State)
	if b.repaired != nil {
		b.repaired(rec)
	}
	return nil
}
