package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A Change is what the pool knows about a job now.
type Change struct {
	// Entry has the job's record, unless Gone: then it is not kept any more, or unreadable
	// here, and only the job's id and the revision are known.
	Entry
	Gone    bool
	Expires time.Time // when the broker removes the record; zero: it does not
}

// Changes returns all jobs as they are now, and then each change of one, until ctx ends.
// Caught is called each time that everything that is known now was yielded. Several changes
// of one job in quick succession may come as one.
func (s Store) Changes(ctx context.Context, caught func()) iter.Seq2[Change, error] {
	return s.changes(s.conn.Tail(ctx, all, s.names.Changed("*"), func() bool { caught(); return true }))
}

// Changed returns what has changed up to now behind a number; of zero, all jobs.
func (s Store) Changed(ctx context.Context, after uint64) iter.Seq2[Change, error] {
	span := all
	span.From = after + 1
	return s.changes(s.conn.Scan(ctx, span))
}

// changes returns what messages say about jobs.
func (s Store) changes(messages iter.Seq2[wire.Message, error]) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for m, err := range messages {
			if err != nil {
				yield(Change{}, fmt.Errorf("read all records: %w", err))
				return
			}
			e, ok := decodeFound(m)
			change := Change{Entry: e, Gone: !ok}
			if ok && s.seen != nil {
				s.seen(e)
			}
			if seconds, err := strconv.ParseInt(m.Header.Get("Nats-TTL"), 10, 64); err == nil {
				change.Expires = m.Time.Add(time.Duration(seconds) * time.Second)
			}
			if !yield(change, nil) {
				return
			}
		}
	}
}

// Behind returns how far a reader of all changes has to come that has read those up to a
// number, so that it knows all that is stored now; zero: it does already.
func (s Store) Behind(ctx context.Context, read uint64) (uint64, error) {
	span := all
	span.From = read + 1
	return span.Behind(ctx, s.conn)
}

// Records returns the records of the jobs that are there, in the order in which they are
// named.
func (s Store) Records(ctx context.Context, ids []string) ([]jobs.Record, error) {
	subjects := make([]string, len(ids))
	for i, id := range ids {
		subjects[i] = subject.Key(subject.Jobs, "*."+id)
	}
	messages, _, err := wire.Range{Stream: subject.KVStream(subject.Jobs)}.LastOf(ctx, s.conn, subjects)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	found := make(map[string]jobs.Record, len(ids))
	for _, m := range messages {
		if e, ok := decodeFound(m); ok {
			found[e.ID] = e.Record
		}
	}
	list := make([]jobs.Record, 0, len(found))
	for _, id := range ids {
		rec, ok := found[id]
		if !ok { // gone, or new to the server that has answered: the stream's leader knows
			switch e, err := s.Read(ctx, id); {
			case err == nil:
				rec = e.Record
			case errors.Is(err, jobs.ErrUnavailable), ctx.Err() != nil:
				return nil, err
			default:
				continue // gone, or unreadable, which the claim reports
			}
		}
		list = append(list, rec)
	}
	return list, nil
}

// Written returns the jobs whose records were written within a time, in the order of their
// submission.
func (s Store) Written(ctx context.Context, within time.Duration) ([]jobs.Record, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]jobs.Record{}
	for m, err := range all.Since(ctx, s.conn, now.Add(-within)) {
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		e, ok := decodeFound(m)
		if delete(found, e.ID); ok {
			found[e.ID] = e.Record
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b jobs.Record) int { return cmp.Compare(a.ID, b.ID) }), nil
}

// Dependencies returns the jobs that a job waits for and that have not ended, or
// says how one ended so that it cannot begin.
func (s Store) Dependencies(ctx context.Context, rec jobs.Record) (open []string, failed string, err error) {
	for _, id := range rec.DependsOn {
		on, err := s.Read(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			return nil, fmt.Sprintf("job %s is no longer kept, so its outcome is not known", id), nil
		case err != nil:
			return nil, "", err
		case on.State != jobs.Finished:
			open = append(open, id)
		case on.Outcome != jobs.Success:
			return nil, fmt.Sprintf("job %s ended in %s (%s: %s)", id, on.Outcome, on.Reason, on.Message), nil
		}
	}
	return open, "", nil
}
