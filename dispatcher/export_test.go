package dispatcher

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
)

// Fire works on the next firing of a record like a dispatcher that read the
// record some time before.
func Fire(ctx context.Context, d *Dispatcher, rec calendar.Record, now time.Time) (calendar.Record, error) {
	return d.Schedules().fire(ctx, rec, now)
}

// Due is when a delayed job should have been brought on.
func Due(rec jobs.Record) time.Time { return due(rec) }
