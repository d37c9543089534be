package queue

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/responder"
)

// Lead calls do whenever this process becomes the leader, again and again until
// ctx ends. The context that do gets ends when another process may lead, and do
// must end with it. While there is a leader, pending jobs wait in their records
// until it admits them; see [Queue.Admit]. For a moment two may lead, so what do
// does must be harmless when it is done twice.
func (q *Queue) Lead(ctx context.Context, do func(context.Context)) error {
	return q.election.Run(ctx, do)
}

// Answer serves requests to the operations of the pool until ctx ends. Several processes
// may serve at the same time: a request goes to one of them.
func (q *Queue) Answer(ctx context.Context, handlers []responder.Handler) error {
	return responder.Serve(ctx, q.conn.NC, q.names, handlers)
}

// Reconnects is how often this process has lost the broker and found it again. A broker
// that died in between may have lost the last messages of its lanes.
func (q *Queue) Reconnects() uint64 { return q.conn.NC.Stats().Reconnects }

// Admit sends a job's message, which makes the job claimable whether or not
// there is a leader. It may be repeated.
func (q *Queue) Admit(ctx context.Context, rec jobs.Record) error {
	if err := q.offer(ctx, rec); err != nil {
		return fmt.Errorf("admit job %s: %w", rec.ID, err)
	}
	return nil
}

// Admitted returns the ids of the jobs of a class's lane that have a message.
func (q *Queue) Admitted(ctx context.Context, class, lane string) ([]string, error) {
	ids, err := wire.Range{Stream: subject.QueueStream(class, lane), Subject: ">"}.IDs(ctx, q.conn)
	if err != nil {
		return nil, fmt.Errorf("look into queue %s: %w", class, err)
	}
	return slices.Collect(ids.All()), nil
}
