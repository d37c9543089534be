// Package record reads the records of jobs, which say what is known of each, and their
// specifications, which say what was asked for.
//
//	Get, List ──▶ the records as they are now
//	Watch, Changes ──▶ the same, and then each change
//
// It only reads: the work queue writes the steps of a job, and reviews and purges what comes after
// its end, each by compare-and-set on the revision that an [Entry] has.
package record

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/question"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A Store has the records of a pool. Its methods may be called from any goroutine.
type Store struct {
	conn  *wire.Conn
	names subject.Names
	seen  func(Entry)
}

// New returns the records that a connection leads to. Seen, if not nil, is called with each
// record that is met where all are read.
func New(conn *wire.Conn, names subject.Names, seen func(Entry)) Store {
	return Store{conn, names, seen}
}

// Questions is where the leader answers other processes of the pool.
func (s Store) Questions() question.Bus { return question.Bus{Conn: s.conn, Names: s.names} }

// Now is the time of the broker's clock.
func (s Store) Now(ctx context.Context) (time.Time, error) {
	return s.conn.Now(ctx, subject.KVStream(subject.Jobs))
}

// Get returns a job's record. The id may be abbreviated to the 8 characters
// or more that only one job's id begins with.
func (s Store) Get(ctx context.Context, id string) (jobs.Record, error) {
	e, err := s.Find(ctx, id)
	return e.Record, err
}

// Job returns the job as its submitter wrote it, but no password that is in the
// repository's address: an earlier version took those.
func (s Store) Job(ctx context.Context, id string) (jobs.Job, error) {
	id, err := s.Resolve(ctx, id)
	if err != nil {
		return jobs.Job{}, err
	}
	job, err := s.Spec(ctx, id)
	job.Repo.URL = jobs.WithoutCredentials(job.Repo.URL)
	return job, err
}

// Spec reads a specification, which never changes.
func (s Store) Spec(ctx context.Context, id string) (jobs.Job, error) {
	m, err := s.conn.Peek(ctx, subject.KVStream(subject.Specs), subject.Key(subject.Specs, id))
	if err != nil || m.Gone() {
		return jobs.Job{}, fmt.Errorf("specification of job %s: %w", id, cmp.Or(err, jobs.ErrNotFound))
	}
	var job jobs.Job
	// This is not strict: a newer dispatcher may have written unknown fields.
	if err := json.Unmarshal(m.Data, &job); err != nil {
		return jobs.Job{}, fmt.Errorf("specification of job %s: %w", id, err)
	}
	return job, nil
}

// Find reads a record by an id that a person may have abbreviated.
func (s Store) Find(ctx context.Context, id string) (Entry, error) {
	id, err := s.Resolve(ctx, id)
	if err != nil {
		return Entry{}, err
	}
	return s.Read(ctx, id)
}

// Read reads a record from the stream's leader, by the id alone.
func (s Store) Read(ctx context.Context, id string) (Entry, error) {
	m, err := s.conn.Last(ctx, subject.KVStream(subject.Jobs), subject.Key(subject.Jobs, "*."+id))
	if err == nil && m.Gone() {
		err = jobs.ErrNotFound
		if m.Header.Get(subject.PurgedHeader) != "" {
			err = jobs.ErrPurged
		}
	}
	if err != nil {
		return Entry{}, fmt.Errorf("job %s: %w", id, err)
	}
	e, err := decode(m)
	if err == nil && e.Purging { // so nothing brings it back
		return Entry{}, fmt.Errorf("job %s: %w", id, jobs.ErrPurged)
	}
	return e, err
}

// Peek reads the record of a job of a class from any server of a cluster, which may lag
// behind the stream's leader.
func (s Store) Peek(ctx context.Context, class, id string) (Entry, error) {
	m, err := s.conn.Peek(ctx, subject.KVStream(subject.Jobs), subject.Key(subject.Jobs, class+"."+id))
	if err == nil && m.Gone() {
		err = jobs.ErrNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("job %s: %w", id, err)
	}
	return decode(m)
}

// A Filter selects jobs. Empty fields select all.
type Filter struct {
	Batch   string
	Queue   string
	Session string
	State   jobs.State
	Outcome jobs.Outcome
	Review  jobs.ReviewState // of finished jobs
	Since   time.Time        // submitted since
	// Unfinished selects only jobs that have not finished.
	Unfinished bool
	// Caught, if not nil, is called by Watch each time that it has yielded
	// everything that is known now.
	Caught func()
}

// Match reports whether f selects a job.
func (f Filter) Match(r jobs.Record) bool {
	return (f.Batch == "" || r.Batch == f.Batch) && (f.Queue == "" || r.Queue == f.Queue) &&
		(f.Session == "" || r.Session == f.Session) && (f.State == "" || r.State == f.State) &&
		(f.Outcome == "" || r.Outcome == f.Outcome) && (f.Review == "" || r.Reviewed() == f.Review) &&
		!r.Submitted.Before(f.Since) && !(f.Unfinished && r.State == jobs.Finished)
}

// all are the records, whatever a filter selects. Of all subjects the broker knows how
// many messages there are; under any other filter it counts them for each batch that it sends.
var all = wire.Range{Stream: subject.KVStream(subject.Jobs), Subject: ">"}

// List returns the records that f selects, in the order of submission.
func (s Store) List(ctx context.Context, f Filter) ([]jobs.Record, error) {
	entries, err := s.Entries(ctx, f)
	records := make([]jobs.Record, len(entries))
	for i, e := range entries {
		records[i] = e.Record
	}
	return records, err
}

// Entries returns the records that f selects as they are stored, in the order of submission.
func (s Store) Entries(ctx context.Context, f Filter) ([]Entry, error) {
	if err := jobs.CheckToken("queue", cmp.Or(f.Queue, "any")); err != nil {
		return nil, err
	}
	// A record that changes during the scan is met again at its new place.
	found := map[string]Entry{}
	for m, err := range s.conn.Scan(ctx, all) {
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		e, ok := decodeFound(m)
		if delete(found, e.ID); ok && f.Match(e.Record) {
			found[e.ID] = e
		}
	}
	list := make([]Entry, 0, len(found))
	for _, e := range found {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// Watch returns the records that f selects as they are now, and then each
// change of one, until ctx ends. Several changes of one job in quick succession
// may come as one: it is the states that count here, not the steps.
func (s Store) Watch(ctx context.Context, f Filter) iter.Seq2[jobs.Record, error] {
	return func(yield func(jobs.Record, error) bool) {
		if err := jobs.CheckToken("queue", cmp.Or(f.Queue, "any")); err != nil {
			yield(jobs.Record{}, err)
			return
		}
		caught := func() bool {
			if f.Caught != nil {
				f.Caught()
			}
			return true
		}
		for m, err := range s.conn.Tail(ctx, all, s.names.Changed("*"), caught) {
			if err != nil {
				yield(jobs.Record{}, fmt.Errorf("watch jobs: %w", err))
				return
			}
			e, ok := decodeFound(m)
			if ok && f.Match(e.Record) && !yield(e.Record, nil) {
				return
			}
		}
	}
}
