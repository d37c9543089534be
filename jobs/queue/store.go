package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Stored is what the broker keeps for the pool.
type Stored struct {
	Bytes, Limit int64 // a limit that is not above zero is none
	DeadLetters  int
}

// Stored returns what the broker keeps for the pool.
func (q *Queue) Stored(ctx context.Context) (Stored, error) {
	s, err := account(ctx, q.conn)
	if err != nil {
		return s, err
	}
	var info struct {
		State struct {
			Messages int `json:"messages"`
		} `json:"state"`
	}
	if err := q.conn.Ask(ctx, "STREAM.INFO."+subject.Dead, nil, &info); err != nil {
		return s, fmt.Errorf("count dead letters: %w", err)
	}
	s.DeadLetters = info.State.Messages
	return s, nil
}

// headroom is what the store keeps for the jobs that it has: their heartbeats,
// events and results. A new job is refused before that is used up.
const headroom = 64 << 20

// Room returns [jobs.ErrFull] while the store has no room for another job. It asks
// the broker for room once a second at most.
func (q *Queue) Room(ctx context.Context) error {
	q.mu.Lock()
	fresh := time.Since(q.looked) < time.Second
	q.mu.Unlock()
	if fresh {
		return nil
	}
	s, err := account(ctx, q.conn)
	if err != nil {
		return err
	}
	if s.Limit > 0 && s.Limit-s.Bytes < min(headroom, s.Limit/10) {
		return fmt.Errorf("%w (%d of %d bytes used)", jobs.ErrFull, s.Bytes, s.Limit)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.looked = time.Now()
	return nil
}

// account asks how full the store of the pool's account is.
func account(ctx context.Context, conn *wire.Conn) (Stored, error) {
	var info struct {
		Storage int64 `json:"storage"`
		Limits  struct {
			MaxStorage int64 `json:"max_storage"`
		} `json:"limits"`
	}
	err := conn.Ask(ctx, "INFO", nil, &info)
	return Stored{Bytes: info.Storage, Limit: info.Limits.MaxStorage}, err
}
