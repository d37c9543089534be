// Package timetable keeps the cron schedules of a pool, and has the broker wake a
// dispatcher for the next firing of each.
//
//	Add, Change ──▶ record ──▶ timer of the broker ──▶ Fired ──▶ Fire, by a dispatcher ──▶ Change
//
// The record says when a schedule fires next, and the timer only that it may be time: one
// that is lost is set again by [Timetable.Repair], and one that comes twice finds nothing due.
package timetable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A Timetable has the schedules of a tenant.
type Timetable struct {
	Conn   *wire.Conn
	Names  subject.Names
	Tenant string
	Late   time.Duration // how long a firing may take: what is overdue for longer is armed again
}

// A Fire works on the next firing of a schedule's record, and returns the
// record as it is then. It must be one that may be repeated.
type Fire func(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error)

// Add stores a schedule that is valid, and arms it. One that has its
// name is replaced if that is wanted.
func (t Timetable) Add(ctx context.Context, s calendar.Schedule, replace bool) (calendar.Record, error) {
	if err := jobs.CheckToken("name", s.Name); err != nil {
		return calendar.Record{}, err
	}
	now, err := t.now(ctx)
	if err != nil {
		return calendar.Record{}, err
	}
	if err := t.roomFor(ctx, s.Name); err != nil {
		return calendar.Record{}, err
	}
	rec, err := t.put(ctx, calendar.New(s, now), 0)
	switch {
	case err == nil:
		return rec, t.arm(ctx, rec)
	case !errors.Is(err, wire.ErrConflict):
		return calendar.Record{}, err
	case !replace:
		return calendar.Record{}, invalid("name", "there is a schedule "+s.Name+" already: replace it, or take another name")
	}
	return t.Change(ctx, s.Name, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Replaced(s, now), nil
	})
}

// roomFor refuses a schedule with a new name beyond the most that a
// pool has. Two that are added at once may both be let in.
func (t Timetable) roomFor(ctx context.Context, name string) error {
	taken, err := t.Conn.Subjects(ctx, subject.KVStream(subject.Timetable), subject.Timetabled(t.Tenant, "*"))
	if err != nil {
		return fmt.Errorf("count the schedules: %w", err)
	}
	if _, has := taken[subject.Timetabled(t.Tenant, name)]; !has && len(taken) >= calendar.Most {
		return invalid("name", fmt.Sprintf("there are %d schedules, and no more are allowed: remove one", len(taken)))
	}
	return nil
}

func invalid(field, reason string) error {
	return &jobs.InvalidError{What: "schedule", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}

// Change replaces a schedule's record by what change makes of it, and
// sees to it that the broker wakes a dispatcher for its next firing. It calls
// change again when another process was faster.
func (t Timetable) Change(ctx context.Context, name string, change Fire) (calendar.Record, error) {
	for {
		rec, rev, err := t.read(ctx, name)
		if err != nil {
			return rec, err
		}
		now, err := t.now(ctx)
		if err != nil {
			return rec, err
		}
		next, err := change(ctx, rec, now)
		if err != nil {
			return rec, fmt.Errorf("schedule %s: %w", name, err)
		}
		if !same(rec, next) {
			next, err = t.put(ctx, next, rev)
			if errors.Is(err, wire.ErrConflict) {
				continue
			}
			if err != nil {
				return rec, err
			}
		}
		return next, t.arm(ctx, next)
	}
}

func same(a, b calendar.Record) bool {
	before, err := json.Marshal(a)
	after, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(before, after)
}

// Get returns a schedule's record.
func (t Timetable) Get(ctx context.Context, name string) (calendar.Record, error) {
	rec, _, err := t.read(ctx, name)
	return rec, err
}

func (t Timetable) read(ctx context.Context, name string) (rec calendar.Record, rev uint64, err error) {
	if err := jobs.CheckToken("name", name); err != nil {
		return rec, 0, fmt.Errorf("schedule %q: %w", name, jobs.ErrNotFound)
	}
	m, err := t.Conn.Last(ctx, subject.KVStream(subject.Timetable), subject.Timetabled(t.Tenant, name))
	if err == nil && m.Gone() {
		err = jobs.ErrNotFound
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &rec)
	}
	if err != nil {
		return rec, 0, fmt.Errorf("schedule %s: %w", name, err)
	}
	rec.Job.Repo.URL = jobs.WithoutCredentials(rec.Job.Repo.URL)
	return rec, m.Seq, nil
}

func (t Timetable) put(ctx context.Context, rec calendar.Record, rev uint64) (calendar.Record, error) {
	data, err := json.Marshal(rec)
	if err != nil {
		return rec, err
	}
	_, err = t.Conn.Put(ctx, wire.Write{
		Stream: subject.KVStream(subject.Timetable), Subject: subject.Timetabled(t.Tenant, rec.Name), Data: data, Expect: rev,
	})
	if err != nil {
		return rec, fmt.Errorf("store schedule %s: %w", rec.Name, err)
	}
	return rec, nil
}

// List returns all schedules, by name.
func (t Timetable) List(ctx context.Context) ([]calendar.Record, error) {
	found := map[string]calendar.Record{} // one that changes during the scan is met again
	for m, err := range t.Conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Timetable), Subject: subject.Timetabled(t.Tenant, "*")}) {
		if err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		var rec calendar.Record
		if json.Unmarshal(m.Data, &rec) == nil && !m.Gone() {
			rec.Job.Repo.URL = jobs.WithoutCredentials(rec.Job.Repo.URL)
			found[rec.Name] = rec
		}
	}
	list := make([]calendar.Record, 0, len(found))
	for _, rec := range found {
		list = append(list, rec)
	}
	slices.SortFunc(list, func(a, b calendar.Record) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Remove removes a schedule. Its jobs stay.
func (t Timetable) Remove(ctx context.Context, name string) error {
	if _, _, err := t.read(ctx, name); err != nil {
		return err
	}
	if err := t.Conn.Purge(ctx, subject.KVStream(subject.Timetable), subject.Timetabled(t.Tenant, name)); err != nil {
		return fmt.Errorf("remove schedule %s: %w", name, err)
	}
	// This comes last, because a dispatcher that works on a firing now may arm
	// it once more. The timer it leaves then is dropped when it comes due.
	return t.disarm(ctx, name)
}

// arm asks the broker to wake a dispatcher for a schedule's next firing, instead
// of what it was asked before. It may be repeated.
func (t Timetable) arm(ctx context.Context, rec calendar.Record) error {
	if rec.Next == nil {
		return t.disarm(ctx, rec.Name)
	}
	msg := nats.NewMsg(t.Names.Timer(t.Tenant, rec.Name))
	msg.Header.Set("Nats-Schedule", "@at "+rec.Next.UTC().Format(time.RFC3339Nano))
	msg.Header.Set("Nats-Schedule-Target", t.Names.Fire(t.Tenant, rec.Name))
	if err := t.Conn.Publish(ctx, msg); err != nil {
		return fmt.Errorf("arm schedule %s: %w", rec.Name, err)
	}
	return nil
}

func (t Timetable) disarm(ctx context.Context, name string) error {
	for _, s := range []string{t.Names.Timer(t.Tenant, name), t.Names.Fire(t.Tenant, name)} {
		if err := t.Conn.Purge(ctx, subject.Schedules, s); err != nil {
			return fmt.Errorf("disarm schedule %s: %w", name, err)
		}
	}
	return nil
}

// Fired handles the broker's message that a schedule is due.
func (t Timetable) Fired(ctx context.Context, name string, fire Fire) error {
	_, err := t.Change(ctx, name, func(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		if !rec.Due(now) {
			return rec, nil // worked on already, replaced or paused: only armed again
		}
		return fire(ctx, rec, now)
	})
	if errors.Is(err, jobs.ErrNotFound) {
		return nil // removed
	}
	return err
}

// Repair arms schedules that are overdue: the process that wrote them
// died before it asked the broker. It returns their names.
func (t Timetable) Repair(ctx context.Context) ([]string, error) {
	list, err := t.List(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	now, err := t.now(ctx)
	if err != nil {
		return nil, err
	}
	var armed []string
	for _, rec := range list {
		if rec.Next == nil || now.Sub(*rec.Next) < t.Late {
			continue
		}
		if err := t.arm(ctx, rec); err != nil {
			return armed, err
		}
		armed = append(armed, rec.Name)
	}
	return armed, nil
}

func (t Timetable) now(ctx context.Context) (time.Time, error) {
	return t.Conn.Now(ctx, subject.KVStream(subject.Jobs)) // the clock of the jobs that it submits
}
