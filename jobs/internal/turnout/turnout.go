// Package turnout bounds how many of those that wait for the same job are notified of it.
package turnout

import "math/rand/v2"

// A Crowd is how many others wait for the same, as far as one that waits can tell. A few are
// all notified of each job; one gets it, and the others have asked the broker in vain. A thousand
// of them would keep the broker from its work, by what they ask and by the notifications themselves.
// So one that has asked in vain many times joins one of a few groups, and the broker notifies one
// of each group only. One that gets jobs leaves its group again.
//
// The zero value is in no group. A Crowd is for one goroutine at a time.
type Crowd struct {
	vain  int // answers, of which one that brought something forgives several
	group int
}

// Groups is how many there are. Of fewer that wait, all are notified.
const Groups = 8

const (
	patient = 8 // so many answers in vain do not mean that there is a crowd
	forgive = 6
	most    = patient + 2*forgive // so it does not stay in its group for long when the others have gone
)

// Group is that of which one member is notified, from 1 to [Groups]; 0: all are.
func (c *Crowd) Group() int { return c.group }

// Tell learns from a look, which was the answer to a notification or was made without one:
// whether it brought something.
func (c *Crowd) Tell(answer, something bool) {
	switch {
	case something:
		c.vain = max(0, c.vain-forgive)
	case answer:
		c.vain = min(most, c.vain+1)
	}
	switch many := c.vain > patient; {
	case !many:
		c.group = 0
	case c.group == 0:
		c.group = 1 + rand.IntN(Groups)
	}
}
