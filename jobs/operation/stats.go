package operation

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// DefaultWindow is how far back statistics look where a request does not say.
const DefaultWindow = time.Hour

// A StatsRequest says of which queues statistics are wanted, and over which window.
type StatsRequest struct {
	Queues []string      `json:"queue,omitempty" jsonschema:"Of these queues; the default is all."`
	Window jobs.Duration `json:"window,omitempty" jsonschema:"How far back to look at jobs that began and ended; the default is 1h. The pool knows of no more than it keeps."`
	After  string        `json:"after,omitempty" jsonschema:"The next of the page before."`
	Limit  int           `json:"limit,omitempty" jsonschema:"How many queues are wanted, at most 1000, which is the default."`
}

func (r StatsRequest) check() error {
	if r.Window < 0 {
		return invalid("window", "is negative")
	}
	for _, name := range r.Queues {
		if err := jobs.CheckToken("queue", name); err != nil {
			return err
		}
	}
	return checkLimit(r.Limit)
}

// PoolStats are the statistics of a pool.
type PoolStats struct {
	Pending   int        `json:"pending" jsonschema:"Jobs that wait for a worker."`
	Delayed   int        `json:"delayed" jsonschema:"Jobs that wait for a time."`
	Executing int        `json:"executing" jsonschema:"Jobs that a worker holds."`
	Waiting   int        `json:"waiting" jsonschema:"Jobs that wait for a person, other jobs or the end of a pause."`
	Finished  int        `json:"finished" jsonschema:"Jobs that have finished and are still kept."`
	Oldest    *time.Time `json:"oldest_pending,omitempty" jsonschema:"When the oldest pending job was submitted."`
	Queues    int        `json:"queues" jsonschema:"Queues that hold jobs or are paused."`

	At      time.Time     `json:"at" jsonschema:"When this was counted: the end of the window."`
	Window  jobs.Duration `json:"window" jsonschema:"How long the window is."`
	Lately  Lately        `json:"lately" jsonschema:"What happened within the window, in all of these queues."`
	ByQueue []QueueStats  `json:"by_queue" jsonschema:"The same of each queue, by name."`
	Next    string        `json:"next,omitempty" jsonschema:"There if the list of queues goes on: what the next request has as after."`
}

// QueueStats are the statistics of a queue.
type QueueStats struct {
	Queue
	Lately Lately `json:"lately" jsonschema:"What happened within the window."`
}

// Lately is what happened within a window.
type Lately struct {
	Ended     int                  `json:"ended" jsonschema:"Jobs that ended."`
	PerMinute float64              `json:"per_minute" jsonschema:"How many of them there were in a minute."`
	Outcomes  map[jobs.Outcome]int `json:"outcomes" jsonschema:"How many ended with each outcome."`
	Wait      Spread               `json:"wait" jsonschema:"Of jobs whose first attempt began: the time from their submission until then, with delays and dependencies."`
	Run       Spread               `json:"run" jsonschema:"Of jobs that ended and had an attempt: the time from its beginning, or that of the last one, to the end."`
	CostUSD   float64              `json:"cost_usd" jsonschema:"What all attempts of the jobs that ended cost."`
}

// A Spread is how times are distributed, in seconds.
type Spread struct {
	Count int     `json:"count" jsonschema:"How many times there are; the others are 0 if there is none."`
	P50   float64 `json:"p50" jsonschema:"The median, in seconds."`
	P95   float64 `json:"p95" jsonschema:"What 95 % took at most."`
	Max   float64 `json:"max" jsonschema:"The longest."`
}
