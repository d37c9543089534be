package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// A Stat counts the jobs of one queue that are in one state, and says what
// the broker knows about the queue.
type Stat struct {
	Queue  string
	State  jobs.State
	Jobs   int
	Oldest time.Time // when the one that waits longest was submitted

	// These count the queue as a whole, on the row of its pending jobs.
	Messages    uint64 // stored in its lanes
	Undelivered uint64 // of these, never handed to a worker
	AckPending  int    // held by workers
	Redelivered int
	Paused      bool
}

// Stats returns a row for every queue and state that has jobs, and one for
// the pending jobs of every queue.
func (q *Queue) Stats(ctx context.Context) ([]Stat, error) {
	entries, err := q.entries(ctx, Filter{})
	if err != nil {
		return nil, err
	}
	type row struct {
		queue string
		state jobs.State
	}
	rows := map[row]*Stat{}
	at := func(queue string, state jobs.State) *Stat {
		r := row{queue, state}
		if rows[r] == nil {
			rows[r] = &Stat{Queue: queue, State: state}
		}
		return rows[r]
	}
	for _, e := range entries {
		at(e.Queue, jobs.Pending)
		s := at(e.Queue, e.State)
		if s.Jobs++; s.Oldest.IsZero() || e.Submitted.Before(s.Oldest) {
			s.Oldest = e.Submitted
		}
	}
	var out []Stat
	for r, s := range rows {
		if r.state == jobs.Pending {
			if err := q.addLanes(ctx, s); err != nil {
				return nil, err
			}
		}
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Stat) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State))
	})
	return out, nil
}

func (q *Queue) addLanes(ctx context.Context, s *Stat) error {
	classes, err := q.classesOf(ctx, s.Queue)
	if err != nil {
		return err
	}
	for _, class := range classes {
		for _, lane := range subject.Lanes {
			if err := q.addLane(ctx, s, subject.QueueStream(class, lane)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *Queue) addLane(ctx context.Context, s *Stat, stream string) error {
	con, err := q.conn.JS.Consumer(ctx, stream, subject.Consumer)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("queue %s: %w", s.Queue, err)
	}
	info := con.CachedInfo()
	s.Undelivered += info.NumPending
	s.AckPending += info.NumAckPending
	s.Redelivered += info.NumRedelivered
	s.Messages += info.NumPending + uint64(info.NumAckPending)
	s.Paused = s.Paused || info.Paused
	return nil
}
