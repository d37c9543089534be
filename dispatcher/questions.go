package dispatcher

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

// questions answer what other processes ask the leader about all jobs.
type questions struct {
	queue *queue.Queue
	log   *slog.Logger
	all   *catalog.Index
	open  *unfinished
	read  *progress
}

// note takes up a change of a record.
func (a questions) note(c record.Change) {
	a.all.Note(c)
	a.read.reach(c.Rev)
}

// answer answers until ctx ends. An asker without an answer reads the records itself, so a failure is only
// logged.
func (a questions) answer(ctx context.Context) {
	if err := catalog.Serve(ctx, a.queue, a.all, a.open, a.caught); err != nil && ctx.Err() == nil {
		a.log.Warn("answer questions about jobs", "err", err)
	}
}

// behindAgain is how long a reader that is behind waits until it looks again how far it has to
// come: the message that it waits for may have been removed.
const behindAgain = 200 * time.Millisecond

// caught waits until everything that is stored now has been noted.
func (a questions) caught(ctx context.Context) error {
	goal := uint64(math.MaxUint64)
	for {
		behind, err := a.queue.Behind(ctx, a.read.reached())
		if err != nil || behind == 0 {
			return err
		}
		goal = min(goal, behind) // what is stored later need not be known
		waiting, done := context.WithTimeout(ctx, behindAgain)
		err = a.read.wait(waiting, goal)
		done()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// progress is how far the changes of records have been read.
type progress struct {
	mu   sync.Mutex
	seq  uint64
	more chan struct{} // closed when seq grows
}

func newProgress() *progress { return &progress{more: make(chan struct{})} }

// reach says that the change with a number was read, and all before it.
func (p *progress) reach(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq > p.seq {
		p.seq = seq
		close(p.more)
		p.more = make(chan struct{})
	}
}

// reached is the number of the last change that was read.
func (p *progress) reached() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// wait waits until the change with a number was read.
func (p *progress) wait(ctx context.Context, seq uint64) error {
	for {
		p.mu.Lock()
		at, more := p.seq, p.more
		p.mu.Unlock()
		if at >= seq {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
