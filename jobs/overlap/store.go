package overlap

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/presence"
)

// KeptFor is how long after its last change a work, or an overlap, is forgotten.
const KeptFor = 24 * time.Hour

var stream = subject.KVStream(subject.Workers)

// A Store is that of a pool. Its methods may be called from any goroutine.
type Store struct{ workers presence.Workers }

// Of returns the store of a pool, by the connection of its workers.
func Of(w presence.Workers) Store { return Store{w} }

// Put says what a job has changed by now.
func (s Store) Put(ctx context.Context, w Work) error {
	if err := s.put(ctx, subject.Touched(w.Job), w); err != nil {
		return fmt.Errorf("say which files job %s has changed: %w", w.Job, err)
	}
	return nil
}

func (s Store) put(ctx context.Context, at string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(at)
	msg.Data = body
	return s.workers.Keep(ctx, msg, KeptFor)
}

// A Cursor is a place in what was put. The zero value is before all of it.
type Cursor uint64

// Since calls take with each work that was put after a place, unless it was replaced, the oldest first. It
// returns the place of the last that it has read.
func (s Store) Since(ctx context.Context, after Cursor, take func(Work)) (Cursor, error) {
	for m, err := range s.workers.Conn.Scan(ctx, wire.Range{Stream: stream, Subject: subject.Touched("*"), From: uint64(after) + 1}) {
		if err != nil {
			return after, fmt.Errorf("read which files jobs have changed: %w", err)
		}
		var w Work
		if !m.Gone() && json.Unmarshal(m.Data, &w) == nil && m.Subject == subject.Touched(w.Job) {
			take(w)
		}
		after = Cursor(m.Seq)
	}
	return after, nil
}

// Note keeps that a job overlaps with another, in place of what was found of both before.
func (s Store) Note(ctx context.Context, job string, found jobs.Overlap) error {
	if err := s.put(ctx, subject.Overlap(job, found.Job), found); err != nil {
		return fmt.Errorf("keep that jobs %s and %s overlap: %w", job, found.Job, err)
	}
	return nil
}

// Found returns the jobs that a job overlaps with, those with the same lines first.
func (s Store) Found(ctx context.Context, job string) (all []jobs.Overlap, err error) {
	err = s.each(ctx, job, func(_ string, found jobs.Overlap) { all = append(all, found) })
	slices.SortStableFunc(all, func(a, b jobs.Overlap) int { return min(len(b.Lines), 1) - min(len(a.Lines), 1) })
	return all, err
}

// All calls take with each overlap that is kept, and the job that it is of.
func (s Store) All(ctx context.Context, take func(job string, found jobs.Overlap)) error {
	return s.each(ctx, "*", take)
}

func (s Store) each(ctx context.Context, job string, take func(string, jobs.Overlap)) error {
	for m, err := range s.workers.Conn.Scan(ctx, wire.Range{Stream: stream, Subject: subject.Overlap(job, "*")}) {
		if err != nil {
			return fmt.Errorf("read which jobs overlap: %w", err)
		}
		var found jobs.Overlap
		parts := strings.Split(m.Subject, ".")
		if m.Gone() || json.Unmarshal(m.Data, &found) != nil || parts[len(parts)-1] != found.Job {
			continue
		}
		take(parts[len(parts)-2], found)
	}
	return nil
}
