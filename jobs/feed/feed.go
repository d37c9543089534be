// Package feed tells what changes in a pool, to any number of readers.
//
//	records, workers, dead letters, schedules, audit log
//	   └──one tail each──▶ Feed: the newest changes ──▶ readers, each at its own pace
//
// It tells states and not steps: where a job changes several times in quick succession,
// or while a reader is away, the reader gets its newest state once. So what a reader has
// missed is never more than what is different now, and it is read from the broker, by the
// place of the last change that the reader has. A place is good for every process that
// serves the pool. Where it is too old, or too much has changed since, the reader is told
// to begin anew, by a change of kind [Reset]: nothing is left out silently.
//
// A Feed costs the broker the same for one reader as for a thousand, and nothing while
// there is none. A reader that does not keep up holds nothing: it begins anew.
package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Kind is what a change is about.
type Kind string

// The kinds.
const (
	// Reset: what a reader knows of the pool may be out of date in any part.
	Reset    Kind = "reset"
	Job      Kind = "job"
	Worker   Kind = "worker"
	Queue    Kind = "queue"
	Batch    Kind = "batch"
	Schedule Kind = "schedule"
	Dead     Kind = "dead"
	Caps     Kind = "caps"
)

// Kinds has all of them, each with what it means.
var Kinds = []struct {
	Kind    Kind
	Meaning string
}{
	{Reset, "The stream begins here: read the lists again. It is the first event of a stream that does not go on from another one, and comes where a reader was away for too long or is too slow."},
	{Job, "A job is in another state, or was changed in what lists show of it: id, state, queue and, as far as it has them, batch, attempt, worker, hold, outcome, reason, asks and cancel."},
	{Worker, "A worker began, ended (gone), has more or fewer jobs, or began or stopped to drain. Without a name: any of them may have."},
	{Queue, "An operation on a queue: name and operation."},
	{Batch, "An operation on a batch: name and operation."},
	{Schedule, "A schedule was added, changed or removed, or has submitted a job: name."},
	{Dead, "A dead letter was filed, retried or dropped: id."},
	{Caps, "The caps of queues were changed."},
}

// A Change says what is different now. Its fields are those that lists show; whoever
// wants more asks for the thing.
type Change struct {
	// ID is a job's or a dead letter's, Name that of everything else.
	ID   string `json:"id,omitempty" jsonschema:"The job or the dead letter."`
	Name string `json:"name,omitempty" jsonschema:"The worker, queue, batch or schedule."`
	// Operation is what was asked for, where the change was.
	Operation string `json:"operation,omitempty" jsonschema:"The operation that made the change, of queues, batches, schedules and dead letters."`
	Gone      bool   `json:"gone,omitempty" jsonschema:"The worker has ended."`

	State   jobs.State   `json:"state,omitempty" jsonschema:"The job's state."`
	Queue   string       `json:"queue,omitempty" jsonschema:"The job's queue."`
	Batch   string       `json:"batch,omitempty" jsonschema:"The job's batch."`
	Attempt int          `json:"attempt,omitempty" jsonschema:"How many attempts of the job have begun."`
	Worker  string       `json:"worker,omitempty" jsonschema:"The worker that holds the job."`
	Hold    string       `json:"hold,omitempty" jsonschema:"What a waiting job waits for."`
	Outcome jobs.Outcome `json:"outcome,omitempty" jsonschema:"How a finished job ended."`
	Reason  jobs.Reason  `json:"reason,omitempty" jsonschema:"Why the job, or its last attempt, ended."`
	Asks    bool         `json:"asks,omitempty" jsonschema:"The job's agent waits for an answer."`
	Cancel  bool         `json:"cancel,omitempty" jsonschema:"The end of the job was requested."`
}

// An Item is a change as a reader gets it. It is not to be changed: all readers get the
// same one.
type Item struct {
	// Place says where to go on behind it. It means nothing to its reader.
	Place string
	Kind  Kind
	Data  json.RawMessage // a [Change]
}

// Config names the pool. The zero value is an installation with the default names.
type Config struct {
	Prefix string    // of every subject; default "penstock.v1"
	Role   jobs.Role // of the connection's credential. Only the operator may read it all
}

// A Feed tells readers what changes. Its methods may be called from any goroutine.
type Feed struct {
	conn    *wire.Conn
	sources []source
	// kept is how many changes are held for readers, and far how many may have
	// happened since the place of a reader that goes on.
	kept, far int

	mu     sync.Mutex
	window *window // nil while there is no reader
}

const (
	defaultKept = 2048
	defaultFar  = 2000
)

// New returns a feed over a connection, which its caller closes. It does no I/O.
func New(nc *nats.Conn, cfg Config) (*Feed, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	conn, err := wire.New(nc, cfg.Role)
	if err != nil {
		return nil, err
	}
	return &Feed{conn: conn, sources: sources(names), kept: defaultKept, far: defaultFar}, nil
}

// Follow returns what changes behind a place, until ctx ends: behind "" with [Reset].
func (f *Feed) Follow(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		w := f.join(ctx)
		defer f.leave(w)
		if err := w.begun(ctx); err != nil {
			yield(Item{}, err)
			return
		}
		r, missed, err := f.resume(ctx, w, after)
		if err != nil {
			yield(Item{}, err)
			return
		}
		for _, item := range missed {
			if !yield(item, nil) {
				return
			}
		}
		for {
			items, err := r.next(ctx)
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// join makes the caller a reader of the window. There is one while it has readers, and
// does not fail.
func (f *Feed) join(ctx context.Context) *window {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.window == nil || f.window.failure() != nil {
		f.window = newWindow(f.kept)
		f.window.run(context.WithoutCancel(ctx), f.conn, f.sources)
	}
	f.window.readers++
	return f.window
}

// leave ends a window with its last reader.
func (f *Feed) leave(w *window) {
	if f.isLast(w) {
		w.end()
	}
}

// isLast counts a reader out, and reports whether it was the window's last one.
func (f *Feed) isLast(w *window) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.readers--; w.readers > 0 {
		return false
	}
	if f.window == w {
		f.window = nil
	}
	return true
}

// resume finds where a reader goes on: in the window, or behind what is read here for it.
func (f *Feed) resume(ctx context.Context, w *window, after string) (*reader, []Item, error) {
	from, ok := parsePlace(after, w.epoch, len(f.sources))
	ok = ok && time.Since(from.at).Abs() <= goodFor
	if ok {
		w.reach(ctx, from)
	}
	r, begin := w.reader(after)
	if r.found {
		return r, nil, nil
	}
	if !ok || !from.before(r.began) {
		return r, []Item{begin}, nil
	}
	missed, err := f.between(ctx, from, r.began)
	if err != nil {
		return nil, nil, err
	}
	if missed == nil {
		missed = []Item{begin}
	}
	return r, missed, nil
}

// between reads what has changed between two places, or nothing where that is too much.
func (f *Feed) between(ctx context.Context, from, to place) ([]Item, error) {
	from.at = time.Now()
	var missed []Item
	looked := 0
	for i, src := range f.sources {
		if from.seqs[i] >= to.seqs[i] {
			continue
		}
		for m, err := range f.conn.Scan(ctx, src.span(from.seqs[i]+1)) {
			if err != nil {
				return nil, fmt.Errorf("read what has changed: %w", err)
			}
			if m.Seq > to.seqs[i] {
				break // is in the window
			}
			if looked++; looked > f.far {
				return nil, nil
			}
			from = from.with(i, m.Seq)
			if kind, change, ok := src.read(m); ok {
				missed = append(missed, newItem(from, kind, change))
			}
		}
		from = from.with(i, to.seqs[i])
	}
	// Of workers that have died there is no message. It comes last, where its place is
	// the one that is reached: a reader that has it has come further.
	return append(missed, newItem(from, Worker, Change{})), nil
}
