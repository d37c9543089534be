// Package turnout decides which of many that wait for the same answers a notification.
package turnout

import (
	"math"
	"math/rand/v2"
)

// A Chance is with which probability one that waits answers. All of them are notified of each
// job, and one gets it: the others have asked the broker in vain, which a thousand at once would
// keep from its work. So one that asked in vain answers less often, and one that got something
// more often. About seven answer then, however many wait, and of fewer, all do. What none of
// them answers is found by those that look now and then without a notification, of which there
// are many then.
//
// The zero value answers always. A Chance is for one goroutine at a time.
type Chance struct{ vain int } // answers, of which one that brought something forgives several

// After so many in vain, each further one makes it as much less probable that one answers, down
// to one in some thousands.
const (
	patient = 8
	less    = 0.7
	forgive = 6
	most    = patient + 24
)

// Answer reports whether to answer a notification.
func (c *Chance) Answer() bool {
	return c.vain <= patient || rand.Float64() < math.Pow(less, float64(c.vain-patient))
}

// Tell learns from a look, which was the answer to a notification or was made without one:
// whether it brought something.
func (c *Chance) Tell(answer, something bool) {
	switch {
	case something:
		c.vain = max(0, c.vain-forgive)
	case answer:
		c.vain = min(most, c.vain+1)
	}
}
