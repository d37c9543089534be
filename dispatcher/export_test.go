package dispatcher

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/calendar"
)

// Fire works on the next firing of a record as somebody would who has read it
// at some time before.
func Fire(ctx context.Context, d *Dispatcher, rec calendar.Record, now time.Time) (calendar.Record, error) {
	return d.fire(ctx, rec, now)
}
