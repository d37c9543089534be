package catalog

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/queue"
)

// ownKept is how long an index stays that no question has needed, and that is not the leader's.
// Until then only what was written since is read for the next question.
const ownKept = 30 * time.Second

// An ownIndex is the index of a process that finds no leader that answers. There is one
// reader at a time, however many ask: a pool that has just been started is asked by all
// dashboards and monitors at once.
type ownIndex struct {
	queue *queue.Queue
	turn  chan struct{} // holds the right to use what follows
	index *Index
	read  uint64 // the number of the last change that the index has
	used  time.Time
}

func newOwnIndex(q *queue.Queue) *ownIndex { return &ownIndex{queue: q, turn: make(chan struct{}, 1)} }

// current returns an index that has all that is stored now.
func (o *ownIndex) current(ctx context.Context) (*Index, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if o.index == nil || time.Since(o.used) > ownKept {
		o.index, o.read = NewIndex(), 0
	}
	// An asker that gives up leaves what was read to the next one: with very many jobs none may
	// have the time to read all of it.
	defer func() { o.used = time.Now() }()
	for change, err := range o.queue.Changed(ctx, o.read) {
		if err != nil {
			return nil, err
		}
		o.index.Note(change)
		o.read = change.Rev
	}
	return o.index, nil
}
