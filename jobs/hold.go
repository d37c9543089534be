package jobs

import "time"

// A Hold keeps jobs from beginning: those of a queue or of a batch. What runs
// goes on. The broker holds a queue, by delivering nothing of it. The jobs of a
// batch are among others, so each is parked when it is its turn, and comes back
// when the hold is over.
type Hold struct {
	Kind  HoldKind   `json:"kind" jsonschema:"queue or batch."`
	Name  string     `json:"name" jsonschema:"The name of what is paused."`
	By    string     `json:"by,omitempty" jsonschema:"The program that paused it."`
	At    time.Time  `json:"at" jsonschema:"When."`
	Until *time.Time `json:"until,omitempty" jsonschema:"When the pause ends by itself."` // nil: until it is released
	// Cancel: the jobs of the batch end instead, also those submitted later.
	Cancel bool `json:"cancel,omitempty" jsonschema:"The jobs of the batch end, also those that are submitted later."`
}

// Over reports whether the hold's time has passed.
func (h Hold) Over(now time.Time) bool { return h.Until != nil && !now.Before(*h.Until) }

// HoldKind says what is held.
type HoldKind string

// What can be held.
const (
	HoldQueue HoldKind = "queue"
	HoldBatch HoldKind = "batch"
)
