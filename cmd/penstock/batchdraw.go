package main

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/sessionview"
)

const (
	// drawEvery is how often the screen of a batch is drawn anew. Each drawing
	// asks for the terminal's size, so a resize needs no signal.
	drawEvery = 200 * time.Millisecond
	// doingEvery is how often the log is asked what the agents that are shown do.
	doingEvery = time.Second
)

// draw keeps the screen of the batch true until ctx ends. A terminal that has
// gone away is no reason to end the batch.
func (b *batchRun) draw(ctx context.Context) error {
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		_ = b.board.Draw(time.Now())
		select {
		case <-ctx.Done():
			_ = b.board.Close()
			return nil
		case <-tick.C:
		}
	}
}

// askDoing reads from the log what the agents on the screen are doing. It ignores
// errors, because the batch does not depend on it.
func (b *batchRun) askDoing(ctx context.Context) error {
	tick := time.NewTicker(doingEvery)
	defer tick.Stop()
	for {
		for _, rec := range b.board.Shown() {
			if e, err := b.pool.Log.Last(ctx, rec); err == nil && e != nil {
				b.board.Doing(rec.ID, sessionview.Summary(*e))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
