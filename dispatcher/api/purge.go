package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/purge"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/responder"
)

// purgeHandler removes a job, or its whole session. Of a job whose record is gone already it
// removes what is left.
func purgeHandler(q *queue.Queue, all *catalog.Catalog, p *purge.Purger) responder.Handler {
	return handle(operation.Purge, func(ctx context.Context, _ caller, r operation.PurgeRequest) (operation.Purged, error) {
		id, err := q.Resolve(ctx, r.ID)
		if err != nil {
			return operation.Purged{}, err
		}
		rec, missing := p.Find(ctx, id)
		switch {
		case errors.Is(missing, jobs.ErrNotFound):
			rec = jobs.Record{ID: id, Session: id, State: jobs.Finished} // as far as one can tell
		case missing != nil:
			return operation.Purged{}, missing
		}
		list := []jobs.Record{rec}
		done := operation.Purged{Session: rec.Session, Jobs: []string{rec.ID}}
		others, err := all.All(ctx, record.Filter{Session: rec.Session})
		if err != nil {
			return operation.Purged{}, err
		}
		for _, other := range others {
			if other.ID == rec.ID {
				continue
			}
			if !r.Session {
				return operation.Purged{}, &jobs.CodedError{Code: jobs.CodeExists, Message: fmt.Sprintf(
					"job %s is not the only one of its session, which has job %s, too: purge the whole session (--session)", rec.ID, other.ID)}
			}
			list, done.Jobs = append(list, other), append(done.Jobs, other.ID)
		}
		done.Removed, err = p.Session(ctx, rec.Session, list)
		if err == nil && done.Removed == 0 {
			// It is a mistake in the id, unless the job was purged before.
			if _, err = q.Get(ctx, id); errors.Is(err, jobs.ErrPurged) {
				err = nil
			}
		}
		return done, err
	})
}
