package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/question"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// An entry is a record as it is stored.
type entry struct {
	jobs.Record
	rev uint64
	at  time.Time // when it was written, by the broker's clock
	// raw is the record as it was read: what a newer release has written into
	// it besides is written back as it was.
	raw  []byte
	lost *entry // the attempt that the next write takes from a silent worker
}

// errForeign says that a record is of a newer release, and unreadable here.
var errForeign = errors.New("it was written by a newer release: update this one")

// An AmbiguousError reports an abbreviated id that several jobs begin or end with: so many,
// of which IDs are the first.
type AmbiguousError struct {
	Prefix string
	IDs    []string
	Count  int
}

// AmbiguousShown is how many ids an [AmbiguousError] has at most.
const AmbiguousShown = 8

// ErrorCode implements what [jobs.Code] asks for.
func (e *AmbiguousError) ErrorCode() jobs.ErrorCode { return jobs.CodeAmbiguous }

func (e *AmbiguousError) Error() string {
	more := ""
	if e.Count > len(e.IDs) {
		more = fmt.Sprintf(" and %d more", e.Count-len(e.IDs))
	}
	return fmt.Sprintf("%d jobs begin or end with %q: use more characters of the id: %s%s", e.Count, e.Prefix, strings.Join(e.IDs, ", "), more)
}

// Get returns a job's record. The id may be abbreviated to the 8 characters
// or more that only one job's id begins with.
func (q *Queue) Get(ctx context.Context, id string) (jobs.Record, error) {
	e, err := q.find(ctx, id)
	return e.Record, err
}

// Job returns the job as its submitter wrote it, but no password that is in the
// repository's address: an earlier version took those.
func (q *Queue) Job(ctx context.Context, id string) (jobs.Job, error) {
	id, err := q.resolve(ctx, id)
	if err != nil {
		return jobs.Job{}, err
	}
	job, err := q.spec(ctx, id)
	job.Repo.URL = jobs.WithoutCredentials(job.Repo.URL)
	return job, err
}

// spec reads a specification, which never changes.
func (q *Queue) spec(ctx context.Context, id string) (jobs.Job, error) {
	m, err := q.conn.Peek(ctx, subject.KVStream(subject.Specs), subject.Key(subject.Specs, id))
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

// find reads a record by an id that a person may have abbreviated.
func (q *Queue) find(ctx context.Context, id string) (entry, error) {
	id, err := q.resolve(ctx, id)
	if err != nil {
		return entry{}, err
	}
	return q.read(ctx, id)
}

// read reads a record from the stream's leader, by the id alone.
func (q *Queue) read(ctx context.Context, id string) (entry, error) {
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Jobs), subject.Key(subject.Jobs, "*."+id))
	if err == nil && m.Gone() {
		err = jobs.ErrNotFound
		if m.Header.Get(subject.PurgedHeader) != "" {
			err = jobs.ErrPurged
		}
	}
	if err != nil {
		return entry{}, fmt.Errorf("job %s: %w", id, err)
	}
	e, err := decode(m)
	if err == nil && e.Purging { // so nothing brings it back
		return entry{}, fmt.Errorf("job %s: %w", id, jobs.ErrPurged)
	}
	return e, err
}

func decode(m wire.Message) (entry, error) {
	e := entry{rev: m.Seq, at: m.Time, raw: m.Data}
	if err := json.Unmarshal(m.Data, &e.Record); err != nil {
		if e.Schema > jobs.RecordSchema {
			err = fmt.Errorf("%w: %w", errForeign, err)
		}
		return entry{}, fmt.Errorf("record %s: %w", m.Subject, err)
	}
	e.Repo = jobs.WithoutCredentials(e.Repo)
	if e.State == jobs.Executing && e.Epoch == 0 {
		// The claim could not know the revision that it was going to get.
		e.Epoch = m.Seq
	}
	return e, nil
}

// recordFields are the names that this release knows.
var recordFields = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for field := range reflect.TypeFor[jobs.Record]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
	return names
})

// encode writes a record with all that was in it.
func (e entry) encode() ([]byte, error) {
	data, err := json.Marshal(e.Record)
	if err != nil || e.raw == nil {
		return data, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.raw, &all); err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return recordFields()[name] })
	if len(all) == 0 {
		return data, nil
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// put writes a record if it has not changed since e was read.
func (q *Queue) put(ctx context.Context, e entry) (entry, error) {
	e.Schema = max(e.Schema, jobs.RecordSchema)
	data, err := e.encode()
	if err != nil {
		return e, err
	}
	w := wire.Write{
		Stream: subject.KVStream(subject.Jobs), Subject: subject.Key(subject.Jobs, e.Class+"."+e.ID),
		Data: data, Expect: e.rev,
	}
	if e.State == jobs.Finished {
		w.TTL = q.cfg.Retention
	}
	sent := time.Now()
	rev, err := q.conn.Put(ctx, w)
	if err != nil {
		return e, fmt.Errorf("job %s: %w", e.ID, err)
	}
	e.rev, e.at = rev, sent
	if e.State == jobs.Executing && e.Epoch == 0 {
		e.Epoch = rev
	}
	if e.lost != nil && q.cfg.Hooks.WorkerLost != nil {
		q.cfg.Hooks.WorkerLost(e.lost.Record, e.lost.at)
	}
	e.lost = nil
	return e, nil
}

// resolve turns an abbreviated id into a whole one.
func (q *Queue) resolve(ctx context.Context, id string) (string, error) {
	if err := jobs.CheckToken("id", id); err != nil {
		return "", fmt.Errorf("job %q: %w", id, jobs.ErrNotFound)
	}
	if len(id) == 36 {
		return id, nil
	}
	if len(id) < 4 {
		return "", fmt.Errorf("job %q: %w: give at least 4 characters of the beginning or the end of its id", id, jobs.ErrNotFound)
	}
	found, err := q.matching(ctx, id)
	if err != nil {
		return "", err
	}
	switch found.Count {
	case 0:
		return "", fmt.Errorf("job %q: %w", id, jobs.ErrNotFound)
	case 1:
		return found.IDs[0], nil
	}
	return "", &AmbiguousError{id, found.IDs, found.Count}
}

// matching finds the ids that begin or end with a text.
func (q *Queue) matching(ctx context.Context, text string) (found question.Resolved, err error) {
	if q.Kept().Questions().Ask(ctx, question.Resolve, text, &found) == nil {
		return found, nil
	}
	subjects, err := q.conn.Subjects(ctx, subject.KVStream(subject.Jobs), subject.Key(subject.Jobs, "*.*"))
	for s := range subjects {
		if whole := s[strings.LastIndexByte(s, '.')+1:]; strings.HasPrefix(whole, text) || strings.HasSuffix(whole, text) {
			found.IDs = append(found.IDs, whole)
		}
	}
	slices.Sort(found.IDs)
	found.Count = len(found.IDs)
	found.IDs = found.IDs[:min(found.Count, AmbiguousShown)]
	return found, err
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

// allRecords are the records, whatever a filter selects. Of all subjects the broker knows how
// many messages there are; under any other filter it counts them for each batch that it sends.
var allRecords = wire.Range{Stream: subject.KVStream(subject.Jobs), Subject: ">"}

// List returns the records that f selects, in the order of submission.
func (q *Queue) List(ctx context.Context, f Filter) ([]jobs.Record, error) {
	entries, err := q.entries(ctx, f)
	records := make([]jobs.Record, len(entries))
	for i, e := range entries {
		records[i] = e.Record
	}
	return records, err
}

func (q *Queue) entries(ctx context.Context, f Filter) ([]entry, error) {
	if err := jobs.CheckToken("queue", cmp.Or(f.Queue, "any")); err != nil {
		return nil, err
	}
	// A record that changes during the scan is met again at its new place.
	found := map[string]entry{}
	for m, err := range q.conn.Scan(ctx, allRecords) {
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		e, ok := q.decodeFound(m)
		if delete(found, e.ID); ok && f.Match(e.Record) {
			found[e.ID] = e
		}
	}
	list := make([]entry, 0, len(found))
	for _, e := range found {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// decodeFound decodes a message that a scan found. A record that cannot be read is left to the
// claim to report: it must not hide all others.
func (q *Queue) decodeFound(m wire.Message) (entry, bool) {
	id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	e, err := decode(m)
	if m.Gone() || err != nil || e.ID != id {
		return entry{Record: jobs.Record{ID: id}}, false
	}
	return e, true
}

// Watch returns the records that f selects as they are now, and then each
// change of one, until ctx ends. Several changes of one job in quick succession
// may come as one: it is the states that count here, not the steps.
func (q *Queue) Watch(ctx context.Context, f Filter) iter.Seq2[jobs.Record, error] {
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
		for m, err := range q.conn.Tail(ctx, allRecords, q.names.Changed("*"), caught) {
			if err != nil {
				yield(jobs.Record{}, fmt.Errorf("watch jobs: %w", err))
				return
			}
			e, ok := q.decodeFound(m)
			if ok && f.Match(e.Record) && !yield(e.Record, nil) {
				return
			}
		}
	}
}

// isConflict reports whether a compare-and-set came too late.
func isConflict(err error) bool { return errors.Is(err, wire.ErrConflict) }
