package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/receipt"
)

// batchFrom is how many events are worth a batch. For each the broker makes a
// store of its own and syncs that, with the whole stream waiting: about as
// much work as a dozen synced events, or a hundred that are not.
const batchFrom = 32

// maxBatchBytes bounds what is sent to the broker before it answers.
const maxBatchBytes = 2 << 20

// A Writer appends the events of one attempt. Its methods may be called from
// any goroutine; what one call appends stays together.
type Writer struct {
	log  *Log
	src  Source
	busy chan struct{} // held while appending; guards what follows
	at   end
	lost bool // fenced once is fenced for ever
	// chain is over all events of the session since the first one of the attempt.
	chain receipt.Chain
}

// Writer appends first, the event that an attempt begins with, after whatever
// is there. From then on the writers of the job's earlier attempts are fenced.
func (l *Log) Writer(ctx context.Context, src Source, first jobs.Event) (*Writer, error) {
	stored, at, err := l.appendAfter(ctx, src, first, func(end) (bool, error) { return true, nil })
	if err != nil {
		return nil, err
	}
	w := &Writer{log: l, src: src, busy: make(chan struct{}, 1), at: at}
	text, err := encode(stored)
	w.chain.Add(stored.Seq, text)
	src.stored(text)
	return w, err
}

// Chain returns what the session has from the first event of the attempt to the last that the
// writer knows of: its own, and those of others in between.
func (w *Writer) Chain() receipt.Chain {
	w.busy <- struct{}{}
	defer func() { <-w.busy }()
	return w.chain
}

// Append adds events and returns when they are stored. While the broker is
// away it waits, until ctx ends. It returns [jobs.ErrFenced] when a later
// attempt of the job has begun or the job has finished: nothing may follow.
// An event that is larger than [jobs.MaxEventBytes] is cut and says so.
//
// Many events in one call are stored as a batch, with one sync of the
// broker's disk, so append a backlog in one call.
func (w *Writer) Append(ctx context.Context, events ...jobs.Event) error {
	select {
	case w.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.busy }()
	// Whatever is sent again is the same text, by which adopt knows it.
	events = stamped(events)
	for len(events) > 0 {
		if w.lost {
			return fmt.Errorf("session %s: %w", w.src.Session, jobs.ErrFenced)
		}
		n, err := w.some(ctx, events)
		if err != nil {
			return fmt.Errorf("append to session %s: %w", w.src.Session, err)
		}
		events = events[n:]
	}
	return nil
}

// stamped returns the events with the time of each.
func stamped(events []jobs.Event) []jobs.Event {
	events = slices.Clone(events)
	now := time.Now().UTC()
	for i := range events {
		if events[i].Time.IsZero() {
			events[i].Time = now
		}
	}
	return events
}

// some appends the first of the events, or as many as one batch takes if
// that pays, and returns how many. An event of the job has headers of its own, so it is
// never part of a batch.
func (w *Writer) some(ctx context.Context, events []jobs.Event) (int, error) {
	at := slices.IndexFunc(events, ofJob)
	switch {
	case at == 0:
		events = []jobs.Event{fill(events[0], w.src, w.at.seq+1)}
	case at > 0:
		events = events[:at]
	}
	if len(events) < batchFrom {
		events = events[:1]
	}
	all, err := w.encode(events)
	if err != nil {
		return 0, err
	}
	write := w.at.write(w.log, w.src)
	if at == 0 {
		write.Header = w.log.header(events[0], all[0], w.src.Trace)
	}
	pos, err := w.log.conn.PutAll(ctx, write, all)
	if errors.Is(err, wire.ErrNoBatch) {
		all = all[:1]
		pos, err = w.log.conn.PutAll(ctx, write, all)
	}
	if errors.Is(err, wire.ErrConflict) {
		return w.adopt(ctx, all)
	}
	if err != nil {
		return 0, err
	}
	for i, text := range all {
		w.chain.Add(w.at.seq+uint64(i)+1, text)
	}
	w.src.stored(all...)
	w.at = end{seq: w.at.seq + uint64(len(all)), pos: pos}
	return len(all), nil
}

// encode writes the events as they are stored, as many as one batch takes.
func (w *Writer) encode(events []jobs.Event) ([][]byte, error) {
	var all [][]byte
	size := 0
	for i, e := range events {
		data, err := encode(fill(e, w.src, w.at.seq+uint64(i)+1))
		if err != nil {
			return nil, err
		}
		if i == wire.MaxBatch || i > 0 && size+len(data) > maxBatchBytes {
			break
		}
		all, size = append(all, data), size+len(data)
	}
	return all, nil
}

// adopt moves behind what others have appended, unless one of them has taken
// the job over. It returns how many of the events that were just sent are stored
// nevertheless: their answer was lost, and others appended before they were looked for, or
// the server that was asked did not have them yet. If what this writer has appended last is
// gone, the session was purged, and must not begin again.
func (w *Writer) adopt(ctx context.Context, sent [][]byte) (stored int, err error) {
	after := wire.Range{Stream: subject.Events, Subject: w.log.names.SessionEvents(w.log.cfg.Tenant, w.src.Session), From: w.at.pos + 1}
	moved := false
	for m, err := range w.log.conn.Scan(ctx, after) {
		if err != nil {
			return 0, err
		}
		e, err := decode(m)
		if err != nil {
			return 0, err
		}
		w.chain.Add(e.Seq, m.Data)
		if stored < len(sent) && bytes.Equal(m.Data, sent[stored]) {
			w.src.stored(m.Data)
			stored++
			w.at, moved = end{seq: e.Seq, pos: m.Seq}, true
			continue
		}
		if e.Job == w.src.Job && (e.Attempt > w.src.Attempt || e.Kind == jobs.JobClaimed || e.Kind == jobs.JobFinished) {
			w.lost = true
			return 0, jobs.ErrFenced
		}
		w.at, moved = end{seq: e.Seq, pos: m.Seq}, true
	}
	if moved {
		return stored, nil
	}
	_, err = w.log.conn.At(ctx, subject.Events, w.at.pos)
	if errors.Is(err, jobs.ErrNotFound) {
		w.lost = true
		return 0, jobs.ErrFenced
	}
	return 0, err
}
