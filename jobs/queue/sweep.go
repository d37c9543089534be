package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs/internal/idset"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Sweep removes the specifications and keys of jobs that are not kept any
// more, and returns how many.
func (q *Queue) Sweep(ctx context.Context) (int, error) {
	now, err := q.Now(ctx)
	if err != nil {
		return 0, err
	}
	// This looks at the keys and not at the values: a value that this release
	// cannot read is not gone.
	alive, err := wire.Range{Stream: subject.KVStream(subject.Jobs), Subject: subject.Key(subject.Jobs, "*.*")}.IDs(ctx, q.conn)
	if err != nil {
		return 0, err
	}
	removed := 0
	for _, bucket := range []string{subject.Specs, subject.Keys} {
		n, err := q.sweep(ctx, bucket, alive, now.Add(-2*adoptFor))
		removed += n
		if err != nil {
			return removed, fmt.Errorf("sweep %s: %w", bucket, err)
		}
	}
	return removed, nil
}

// sweep removes entries that are older than before and belong to no job that is kept.
func (q *Queue) sweep(ctx context.Context, bucket string, alive *idset.Set, before time.Time) (int, error) {
	n := 0
	for m, err := range q.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(bucket), Subject: subject.Key(bucket, "*")}) {
		if err != nil {
			return n, err
		}
		id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if bucket == subject.Keys {
			var held keyValue
			if json.Unmarshal(m.Data, &held) == nil {
				id = held.ID
			}
		}
		if alive.Has(id) || m.Time.After(before) {
			continue
		}
		if err := q.conn.Purge(ctx, subject.KVStream(bucket), m.Subject); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
