package queue

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

// A Fire works on the next firing of a schedule's record, and returns the
// record as it is then. It must be one that may be repeated.
type Fire func(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error)

// AddSchedule stores a schedule that is valid, and arms it. One that has its
// name is replaced if that is wanted.
func (q *Queue) AddSchedule(ctx context.Context, s calendar.Schedule, replace bool) (calendar.Record, error) {
	if err := jobs.CheckToken("name", s.Name); err != nil {
		return calendar.Record{}, err
	}
	now, err := q.now(ctx)
	if err != nil {
		return calendar.Record{}, err
	}
	if err := q.roomForSchedule(ctx, s.Name); err != nil {
		return calendar.Record{}, err
	}
	rec, err := q.putSchedule(ctx, calendar.New(s, now), 0)
	switch {
	case err == nil:
		return rec, q.arm(ctx, rec)
	case !isConflict(err):
		return calendar.Record{}, err
	case !replace:
		return calendar.Record{}, invalidSchedule("name", "there is a schedule "+s.Name+" already: replace it, or take another name")
	}
	return q.ChangeSchedule(ctx, s.Name, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Replaced(s, now), nil
	})
}

// roomForSchedule refuses a schedule with a new name beyond the most that a
// pool has. Two that are added at once may both be let in.
func (q *Queue) roomForSchedule(ctx context.Context, name string) error {
	taken, err := q.conn.Subjects(ctx, subject.KVStream(subject.Timetable), subject.Timetabled(q.cfg.Tenant, "*"))
	if err != nil {
		return fmt.Errorf("count the schedules: %w", err)
	}
	if _, has := taken[subject.Timetabled(q.cfg.Tenant, name)]; !has && len(taken) >= calendar.Most {
		return invalidSchedule("name", fmt.Sprintf("there are %d schedules, and no more are allowed: remove one", len(taken)))
	}
	return nil
}

func invalidSchedule(field, reason string) error {
	return &jobs.InvalidError{What: "schedule", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}

// ChangeSchedule replaces a schedule's record by what change makes of it, and
// sees to it that the broker wakes a dispatcher for its next firing. It calls
// change again when another process was faster.
func (q *Queue) ChangeSchedule(ctx context.Context, name string, change Fire) (calendar.Record, error) {
	for {
		rec, rev, err := q.readSchedule(ctx, name)
		if err != nil {
			return rec, err
		}
		now, err := q.now(ctx)
		if err != nil {
			return rec, err
		}
		next, err := change(ctx, rec, now)
		if err != nil {
			return rec, fmt.Errorf("schedule %s: %w", name, err)
		}
		if !same(rec, next) {
			next, err = q.putSchedule(ctx, next, rev)
			if isConflict(err) {
				continue
			}
			if err != nil {
				return rec, err
			}
		}
		return next, q.arm(ctx, next)
	}
}

func same(a, b calendar.Record) bool {
	before, err := json.Marshal(a)
	after, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(before, after)
}

// Schedule returns a schedule's record.
func (q *Queue) Schedule(ctx context.Context, name string) (calendar.Record, error) {
	rec, _, err := q.readSchedule(ctx, name)
	return rec, err
}

func (q *Queue) readSchedule(ctx context.Context, name string) (rec calendar.Record, rev uint64, err error) {
	if err := jobs.CheckToken("name", name); err != nil {
		return rec, 0, fmt.Errorf("schedule %q: %w", name, jobs.ErrNotFound)
	}
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Timetable), subject.Timetabled(q.cfg.Tenant, name))
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

func (q *Queue) putSchedule(ctx context.Context, rec calendar.Record, rev uint64) (calendar.Record, error) {
	data, err := json.Marshal(rec)
	if err != nil {
		return rec, err
	}
	_, err = q.conn.Put(ctx, wire.Write{
		Stream: subject.KVStream(subject.Timetable), Subject: subject.Timetabled(q.cfg.Tenant, rec.Name), Data: data, Expect: rev,
	})
	if err != nil {
		return rec, fmt.Errorf("store schedule %s: %w", rec.Name, err)
	}
	return rec, nil
}

// Schedules returns all schedules, by name.
func (q *Queue) Schedules(ctx context.Context) ([]calendar.Record, error) {
	found := map[string]calendar.Record{} // one that changes during the scan is met again
	for m, err := range q.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Timetable), Subject: subject.Timetabled(q.cfg.Tenant, "*")}) {
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

// RemoveSchedule removes a schedule. Its jobs stay.
func (q *Queue) RemoveSchedule(ctx context.Context, name string) error {
	if _, _, err := q.readSchedule(ctx, name); err != nil {
		return err
	}
	if err := q.conn.Purge(ctx, subject.KVStream(subject.Timetable), subject.Timetabled(q.cfg.Tenant, name)); err != nil {
		return fmt.Errorf("remove schedule %s: %w", name, err)
	}
	// This comes last, because a dispatcher that works on a firing now may arm
	// it once more. The timer it leaves then is dropped when it comes due.
	return q.disarm(ctx, name)
}

// arm asks the broker to wake a dispatcher for a schedule's next firing, instead
// of what it was asked before. It may be repeated.
func (q *Queue) arm(ctx context.Context, rec calendar.Record) error {
	if rec.Next == nil {
		return q.disarm(ctx, rec.Name)
	}
	msg := nats.NewMsg(q.names.Timer(q.cfg.Tenant, rec.Name))
	msg.Header.Set("Nats-Schedule", "@at "+rec.Next.UTC().Format(time.RFC3339Nano))
	msg.Header.Set("Nats-Schedule-Target", q.names.Fire(q.cfg.Tenant, rec.Name))
	if err := q.conn.Publish(ctx, msg); err != nil {
		return fmt.Errorf("arm schedule %s: %w", rec.Name, err)
	}
	return nil
}

func (q *Queue) disarm(ctx context.Context, name string) error {
	for _, s := range []string{q.names.Timer(q.cfg.Tenant, name), q.names.Fire(q.cfg.Tenant, name)} {
		if err := q.conn.Purge(ctx, subject.Schedules, s); err != nil {
			return fmt.Errorf("disarm schedule %s: %w", name, err)
		}
	}
	return nil
}

// fired handles the broker's message that a schedule is due.
func (q *Queue) fired(ctx context.Context, name string, fire Fire) error {
	_, err := q.ChangeSchedule(ctx, name, func(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
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

// RepairSchedules arms schedules that are overdue: the process that wrote them
// died before it asked the broker. It returns their names.
func (q *Queue) RepairSchedules(ctx context.Context) ([]string, error) {
	list, err := q.Schedules(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	now, err := q.now(ctx)
	if err != nil {
		return nil, err
	}
	var armed []string
	for _, rec := range list {
		if rec.Next == nil || now.Sub(*rec.Next) < q.cfg.Lease*3/2 {
			continue
		}
		if err := q.arm(ctx, rec); err != nil {
			return armed, err
		}
		armed = append(armed, rec.Name)
	}
	return armed, nil
}

// HasKey reports whether a key belongs to a job, be it one whose submitter is
// still at work.
func (q *Queue) HasKey(ctx context.Context, key string) (bool, error) {
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Keys), subject.Key(subject.Keys, jobs.HashKey(q.cfg.Tenant, key)))
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil && !m.Gone(), err
}
