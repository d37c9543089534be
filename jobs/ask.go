package jobs

import (
	"cmp"
	"fmt"
	"time"
)

// defaultParkAfter is how long a question keeps its slot where the job does
// not say so, and defaultAskTimeout how long one may stay open.
const (
	defaultParkAfter  = Duration(time.Minute)
	defaultAskTimeout = Duration(24 * time.Hour)
)

// Ask says what happens to questions of a job's agent that are not answered at
// once. A zero field has its default, which is not written into the job.
type Ask struct {
	// ParkAfter is how long a question keeps its slot: if nothing has happened
	// for so long, the session is parked until the question is answered. If it is
	// left out, only agents are parked that can continue their conversation
	// afterwards. If it is set, a program of the user's own is parked, too. That
	// one starts over, and gets the earlier answers when it asks again.
	ParkAfter Duration `json:"park_after,omitempty"`
	// Timeout is how long a question may stay open in all. Then it gets Default
	// as its answer, or with Fail the attempt ends, or else the agent learns
	// that there is no answer.
	Timeout Duration `json:"timeout,omitempty"`
	Default string   `json:"default,omitempty"`
	Fail    bool     `json:"fail,omitempty"`
}

// Grace is how long a question keeps its slot.
func (a Ask) Grace() time.Duration { return time.Duration(cmp.Or(a.ParkAfter, defaultParkAfter)) }

// Limit is how long a question may stay open.
func (a Ask) Limit() time.Duration { return time.Duration(cmp.Or(a.Timeout, defaultAskTimeout)) }

func (a Ask) validate(found *InvalidError) {
	found.add("ask.park_after", within(time.Duration(a.ParkAfter), time.Second, 30*24*time.Hour))
	found.add("ask.timeout", within(time.Duration(a.Timeout), time.Second, 30*24*time.Hour))
	found.add("ask.default", text(a.Default, 4096))
	if a.Default != "" && a.Fail {
		found.add("ask.fail", fmt.Errorf("and ask.default exclude each other"))
	}
}
