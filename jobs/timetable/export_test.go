package timetable

import (
	"context"

	"github.com/penstock-run/penstock/jobs/calendar"
)

// Store stores a record, and dies before it asks the broker for the timer.
func Store(ctx context.Context, t Timetable, rec calendar.Record) error {
	_, err := t.put(ctx, rec, 0)
	return err
}
