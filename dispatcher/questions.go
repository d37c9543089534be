package dispatcher

import (
	"context"
	"log/slog"
	"sync"

	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/queue"
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
func (a questions) note(c queue.Change) {
	if c.Gone {
		a.all.Remove(c.ID)
	} else {
		a.all.Set(c.Record, c.Expires)
	}
	a.read.reach(c.Seq)
}

// answer answers until ctx ends. Who gets no answer helps itself, so a failure is only
// logged.
func (a questions) answer(ctx context.Context) {
	if err := catalog.Serve(ctx, a.queue, a.all, a.open, a.caught); err != nil && ctx.Err() == nil {
		a.log.Warn("answer questions about jobs", "err", err)
	}
}

// caught waits until everything that is stored now has been noted.
func (a questions) caught(ctx context.Context) error {
	last, err := a.queue.Kept().LastChange(ctx)
	if err != nil {
		return err
	}
	return a.read.wait(ctx, last)
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
