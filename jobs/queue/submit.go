package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/jobs/record"
)

// adoptFor is how long a key without a record is taken for a submission that
// was interrupted. After that its job has been kept long enough and is gone.
const adoptFor = time.Hour

// Accept stores a job that has its defaults and is valid. When it returns the
// job will not be lost; it can be claimed once Enqueue has been called, for a
// duplicate too. A duplicate is a job that the same key was given to before.
func (q *Queue) Accept(ctx context.Context, job jobs.Job) (rec jobs.Record, duplicate bool, err error) {
	return q.AcceptAs(ctx, jobs.NewID(), job, "", nil)
}

// AcceptAs is Accept for callers that choose the job's id, so that it can be
// repeated after a crash: the same id is the same job. Source is the door that
// the job came through, for the record. AcceptAs calls announce, if not nil,
// before it makes the record, because from then on the job may be claimed. It
// must be idempotent. An id that another job has is a [*jobs.InvalidError].
func (q *Queue) AcceptAs(ctx context.Context, id string, job jobs.Job, source string, announce func(context.Context, jobs.Record) error) (rec jobs.Record, duplicate bool, err error) {
	rec = jobs.NewRecord(id, q.cfg.Tenant, job, time.Now())
	rec.Source = source
	if err := q.checkNames(rec); err != nil {
		return jobs.Record{}, false, err
	}
	if err := q.lanes.Register(ctx, rec.Class); err != nil {
		return jobs.Record{}, false, accepting(err)
	}
	if _, err := q.lanes.Lease(ctx, rec.Class, rec.Lane); err != nil {
		return jobs.Record{}, false, accepting(err)
	}
	if err := q.roomFor(ctx, id); err != nil {
		return jobs.Record{}, false, accepting(err)
	}
	// In this order a crash leaves either nothing visible, or all that the
	// next submission with the same key needs to go on.
	size, created, err := q.keepSpec(ctx, id, job)
	if err != nil {
		return jobs.Record{}, false, accepting(err)
	}
	rec.Stored = int64(size)
	if rec.Key != "" {
		owner, err := q.takeKey(ctx, rec, announce)
		if err != nil {
			return jobs.Record{}, false, accepting(err)
		}
		if owner.ID != id && created {
			// Left behind it would only wait for the sweep. One that was there before
			// is that of the job with the id.
			_ = q.conn.Purge(ctx, subject.KVStream(subject.Specs), subject.Key(subject.Specs, id))
		}
		if owner.ID != id {
			return owner, true, nil
		}
	}
	return q.begin(ctx, rec, announce)
}

// roomFor is Room for a job, which needs none where it is stored already.
func (q *Queue) roomFor(ctx context.Context, id string) error {
	err := q.Room(ctx)
	if !errors.Is(err, jobs.ErrFull) {
		return err
	}
	if _, missing := q.Spec(ctx, id); missing != nil {
		return err
	}
	return nil
}

func accepting(err error) error { return fmt.Errorf("accept job: %w", err) }

func (q *Queue) checkNames(rec jobs.Record) error {
	var wrong []error
	for field, token := range map[string]string{"id": rec.ID, "queue": rec.Class, "session": rec.Session, "lane": rec.Lane} {
		wrong = append(wrong, jobs.CheckToken(field, token))
	}
	return errors.Join(wrong...)
}

// keepSpec stores the specification of a job. It returns its size in bytes, and whether it was
// not there: an earlier try may have got this far. An id is for one job only. That another job
// has it is a [*jobs.InvalidError].
func (q *Queue) keepSpec(ctx context.Context, id string, job jobs.Job) (size int, created bool, err error) {
	data, err := json.Marshal(job)
	if err != nil {
		return 0, false, err
	}
	w := wire.Write{Stream: subject.KVStream(subject.Specs), Subject: subject.Key(subject.Specs, id), Data: data}
	for range 3 {
		if _, err = q.conn.Put(ctx, w); !isConflict(err) {
			return len(data), err == nil, err
		}
		first, missing := q.Spec(ctx, id)
		if errors.Is(missing, jobs.ErrNotFound) {
			continue // removed meanwhile
		}
		if missing != nil {
			return 0, false, missing
		}
		return len(data), false, sameJob(id, first, job)
	}
	return 0, false, err
}

// sameJob refuses a job whose id belongs to another one.
func sameJob(id string, first, job jobs.Job) error {
	differs, err := jobs.Differences(first, job)
	if err != nil || len(differs) == 0 {
		return err
	}
	return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "id", Reason: fmt.Sprintf(
		"job %s already exists and differs in %s: choose another id", id, strings.Join(differs, ", "))}}}
}

// begin creates the record, unless the job has one.
func (q *Queue) begin(ctx context.Context, rec jobs.Record, announce func(context.Context, jobs.Record) error) (jobs.Record, bool, error) {
	if announce != nil {
		if err := announce(ctx, rec); err != nil {
			return rec, false, fmt.Errorf("announce job %s: %w", rec.ID, err)
		}
	}
	e, err := q.put(ctx, record.Entry{Record: rec})
	if !isConflict(err) {
		return e.Record, false, err
	}
	e, err = q.Read(ctx, rec.ID)
	return e.Record, true, err
}

// keyValue is the value stored under a key.
type keyValue struct {
	ID string `json:"id"`
}

// takeKey returns the record of the job that the key belongs to: the given
// one, if the key was free.
func (q *Queue) takeKey(ctx context.Context, rec jobs.Record, announce func(context.Context, jobs.Record) error) (jobs.Record, error) {
	value, err := json.Marshal(keyValue{rec.ID})
	if err != nil {
		return jobs.Record{}, err
	}
	w := wire.Write{
		Stream:  subject.KVStream(subject.Keys),
		Subject: subject.Key(subject.Keys, jobs.HashKey(rec.Tenant, rec.Key)), Data: value,
	}
	for {
		_, err := q.conn.Put(ctx, w)
		if !isConflict(err) {
			return rec, err
		}
		m, err := q.conn.Last(ctx, w.Stream, w.Subject)
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return jobs.Record{}, err
		}
		w.Expect = m.Seq
		var held keyValue
		if err != nil || m.Gone() || json.Unmarshal(m.Data, &held) != nil {
			continue
		}
		owner, err := q.owner(ctx, held.ID, m.Time, announce)
		if !errors.Is(err, jobs.ErrNotFound) {
			return owner, err
		}
	}
}

// owner returns the record of the job that holds a key since a time. If its
// submitter was interrupted before the record was made, it is made now. That
// the job is not kept any more is [jobs.ErrNotFound].
func (q *Queue) owner(ctx context.Context, id string, since time.Time, announce func(context.Context, jobs.Record) error) (jobs.Record, error) {
	e, err := q.Read(ctx, id)
	if err == nil || !errors.Is(err, jobs.ErrNotFound) {
		return e.Record, err
	}
	// By the broker's clock on both sides: a client with another clock must not
	// take a key from a client that is just submitting.
	now, err := q.Now(ctx)
	if err != nil {
		return jobs.Record{}, err
	}
	if now.Sub(since) > min(adoptFor, q.cfg.Retention) {
		return jobs.Record{}, jobs.ErrNotFound
	}
	job, err := q.Spec(ctx, id)
	if err != nil {
		return jobs.Record{}, err
	}
	rec, _, err := q.begin(ctx, jobs.NewRecord(id, q.cfg.Tenant, job, time.Now()), announce)
	return rec, err
}

// Enqueue makes sure that something brings the job on: the leader, where there is
// one, else the message that a worker claims; or the schedule of a delayed job. A
// job that was parked by a hold that is over comes back. Enqueue may be repeated.
func (q *Queue) Enqueue(ctx context.Context, rec jobs.Record) error {
	var led bool
	var err error
	switch {
	case rec.State == jobs.Pending:
		if led, err = q.election.Led(ctx); err == nil && !led {
			err = q.offer(ctx, rec)
		}
	case rec.State == jobs.Executing:
		err = q.offer(ctx, rec)
	case rec.State == jobs.Delayed || rec.Asking():
		err = q.schedule(ctx, rec)
	case rec.Dependent():
		if led, err = q.election.Led(ctx); err == nil && !led {
			_, err = q.Depend(ctx, rec.ID)
		}
	case rec.State == jobs.Waiting:
		err = q.unpark(ctx, rec.ID)
	}
	if err != nil {
		return fmt.Errorf("enqueue job %s: %w", rec.ID, err)
	}
	return nil
}

func (q *Queue) offer(ctx context.Context, rec jobs.Record) error {
	if _, err := q.lanes.Lease(ctx, rec.Class, rec.Lane); err != nil {
		return err
	}
	msg := nats.NewMsg(q.names.Queue(rec.Class, rec.Lane, rec.Tenant, rec.ID))
	// No message id: inside its window the broker would swallow a job that
	// rightly comes back.
	var err error
	for try := range 4 {
		// One that is refused may not be readable yet, or not any more.
		pause.For(ctx, time.Duration(try)*100*time.Millisecond)
		if err = q.conn.Publish(ctx, msg); !wire.Refused(err) {
			return err
		}
		// Refused because the subject has its message already, or for want of room.
		if _, lastErr := q.conn.Last(ctx, subject.QueueStream(rec.Class, rec.Lane), msg.Subject); lastErr == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: queue %s: %w", jobs.ErrFull, rec.Class, err)
}

// schedule has a job brought on when its time has come. A worker leaves that to
// the leader, which sees the record: a worker that may write one schedule could,
// by a header, remove all others.
func (q *Queue) schedule(ctx context.Context, rec jobs.Record) error {
	if q.conn.Bound {
		return nil
	}
	at := time.Now()
	if rec.NotBefore != nil {
		at = *rec.NotBefore
	}
	msg := nats.NewMsg(q.names.Sched(rec.Tenant, rec.ID))
	msg.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339Nano))
	msg.Header.Set("Nats-Schedule-Target", q.names.Due(rec.Class, rec.Lane, rec.Tenant, rec.ID))
	return q.conn.Publish(ctx, msg)
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
