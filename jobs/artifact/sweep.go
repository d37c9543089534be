package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// orphanAfter is for how long an object without a description may still be
// in the middle of a write.
const orphanAfter = time.Hour

// descriptions are what the store says of its objects.
type descriptions struct {
	last    map[string]wire.Message // by subject
	content map[string]meta         // by subject, what the last one says
	named   map[string]bool         // the content of some object, now or before
	older   map[string]bool         // subjects with more than one
	foreign bool                    // one cannot be read
}

// Sweep removes objects that were replaced, dropped or never finished, and returns
// how many. Workers may not: a worker that can remove one object could remove all.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	removed, err := s.objects.sweep(ctx)
	if err != nil {
		return removed, fmt.Errorf("sweep artifacts: %w", err)
	}
	return removed, nil
}

// Purge removes everything that is stored of a job: artifacts, results, salvages, capsules. It returns
// how many messages of the broker that were. The pieces of an artifact whose writer was killed
// have no name yet: Sweep removes them.
func (s *Store) Purge(ctx context.Context, job string) (int, error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return 0, err
	}
	removed, err := s.objects.purge(ctx, job)
	if err != nil {
		return removed, fmt.Errorf("purge artifacts: %w", err)
	}
	n, err := wire.Range{Stream: subject.KVStream(subject.Results), Subject: subject.Key(subject.Results, job+".>")}.Remove(ctx, s.conn)
	if err != nil {
		err = fmt.Errorf("purge results: %w", err)
	}
	return removed + n, err
}

func (o objectStore) sweep(ctx context.Context) (int, error) {
	// First, so that what is found here and described later was described.
	content, err := o.conn.Subjects(ctx, stream, chunkSubject("*"))
	if err != nil {
		return 0, err
	}
	d, err := o.descriptions(ctx)
	if err != nil {
		return 0, err
	}
	now, err := o.conn.Now(ctx, stream)
	if err != nil {
		return 0, err
	}
	live := map[string]bool{}
	for _, m := range d.content {
		live[m.NUID] = live[m.NUID] || !m.Deleted
	}
	removed := 0
	for at := range content {
		nuid := strings.TrimPrefix(at, chunkSubject(""))
		dead := d.named[nuid]
		if !live[nuid] && !dead && !d.foreign {
			dead, err = o.orphan(ctx, at, now)
		}
		if err == nil && dead && !live[nuid] {
			err = o.conn.Purge(ctx, stream, at)
			removed++
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, o.forget(ctx, d)
}

func (o objectStore) descriptions(ctx context.Context) (descriptions, error) {
	d := descriptions{map[string]wire.Message{}, map[string]meta{}, map[string]bool{}, map[string]bool{}, false}
	for m, err := range o.conn.Scan(ctx, descriptionsOf) {
		if err != nil {
			return d, err
		}
		_, d.older[m.Subject] = d.last[m.Subject]
		var is meta
		if json.Unmarshal(m.Data, &is) != nil || is.NUID == "" {
			d.foreign = true
		}
		m.Data = nil // there may be many
		d.last[m.Subject], d.content[m.Subject] = m, is
		d.named[is.NUID] = true
	}
	return d, nil
}

// orphan reports whether content without a description is left over.
func (o objectStore) orphan(ctx context.Context, at string, now time.Time) (bool, error) {
	m, err := o.conn.Last(ctx, stream, at)
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil && now.Sub(m.Time) > orphanAfter, err
}

// forget removes the descriptions that others have replaced, and those of what
// was dropped. What is written meanwhile stays.
func (o objectStore) forget(ctx context.Context, d descriptions) error {
	for at, m := range d.last {
		seq := m.Seq
		if d.content[at].Deleted {
			seq++
		} else if !d.older[at] {
			continue
		}
		if err := o.conn.PurgeBefore(ctx, stream, at, seq); err != nil {
			return err
		}
	}
	return nil
}
