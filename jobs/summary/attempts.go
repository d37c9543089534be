package summary

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// An Attempt is one try of a job, as its session tells it.
type Attempt struct {
	Attempt int         `json:"attempt" jsonschema:"Its number, from 1."`
	Epoch   uint64      `json:"epoch" jsonschema:"The number that its artifacts are kept under."`
	Worker  string      `json:"worker" jsonschema:"The worker that made it."`
	Began   time.Time   `json:"began" jsonschema:"When the worker claimed the job."`
	Ended   *time.Time  `json:"ended,omitempty" jsonschema:"When it ended, if it has; of one that was lost, when the next one began."`
	End     jobs.Kind   `json:"end,omitempty" jsonschema:"The kind of the event that it ended with."`
	Reason  jobs.Reason `json:"reason,omitempty" jsonschema:"Why it ended."`
	Message string      `json:"message,omitempty" jsonschema:"What happened, for people."`
}

// Attempts are those of a job, the first one first, as far as its log has them.
type Attempts struct {
	Attempts []Attempt `json:"attempts" jsonschema:"The attempts."`
}

// Add takes what an event says of attempts.
func (a *Attempts) Add(e jobs.Event) error {
	end := func(reason jobs.Reason, message string) {
		if n := len(a.Attempts); n > 0 && a.Attempts[n-1].Ended == nil {
			last := &a.Attempts[n-1]
			last.Ended, last.End, last.Reason, last.Message = &e.Time, e.Kind, reason, message
		}
	}
	switch e.Kind {
	case jobs.JobClaimed, jobs.JobRequeued, jobs.JobWaiting, jobs.JobFinished:
	default:
		return nil
	}
	payload, err := event.Decode(e)
	if err != nil {
		return err
	}
	switch data := payload.(type) {
	case event.JobClaimed:
		if data.Lost != nil {
			end(data.Lost.Reason, data.Lost.Message)
		}
		a.Attempts = append(a.Attempts, Attempt{Attempt: e.Attempt, Epoch: data.Epoch, Worker: data.Worker, Began: e.Time})
	case event.JobRequeued:
		end(data.Reason, data.Message)
	case event.JobWaiting:
		end("", data.Question)
	case event.JobFinished:
		end(data.Reason, data.Message)
	}
	return nil
}
