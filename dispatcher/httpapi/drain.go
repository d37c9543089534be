package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

// lookAgain is how often jobs that still run are looked for: one that is parked or handed
// back does not run any more, and has not finished.
const lookAgain = time.Second

// drained says what runs of a queue that begins no more jobs.
type drained struct {
	Hold    jobs.Hold `json:"hold" jsonschema:"The pause of the queue, which stays."`
	Drained bool      `json:"drained" jsonschema:"None of its jobs runs."`
	Running int       `json:"running" jsonschema:"How many of them run."`
}

// drain pauses a queue, and waits until none of its jobs runs, as long as the request says.
func drain(s *Server, c *call, _ Route) error {
	var wait jobs.Duration
	if err := c.params(map[string]any{"wait": &wait}); err != nil {
		return err
	}
	if len(c.body) > 0 && string(c.body) != "{}" {
		return invalid("(body)", "has nothing to say here: leave it out, or send {}")
	}
	name := c.r.PathValue("name")
	hold, err := s.asking(c).Queues().Pause(c.r.Context(), operation.PauseRequest{Name: name})
	if err != nil {
		return err
	}
	patience := min(time.Duration(wait), maxSubmitWait)
	_ = c.control().SetWriteDeadline(time.Now().Add(patience + c.patience)) // every connection of ours has one
	waiting, done := s.untilEnding(c.r.Context())
	defer done()
	waiting, stop := context.WithTimeout(waiting, patience)
	defer stop()
	for {
		running, err := executing(c.r.Context(), s.asking(c), name)
		if err != nil {
			return err
		}
		if len(running) == 0 || waiting.Err() != nil {
			return c.json(http.StatusOK, drained{hold, len(running) == 0, len(running)})
		}
		// Its end, or the end of the time, is an answer; so is an error, where the job is
		// gone, or the pool is away and the next question says so.
		_, _ = client.Ask(waiting, s.asking(c), operation.Wait, operation.WaitRequest{ID: running[0], For: jobs.Duration(lookAgain)})
	}
}

// executing lists the jobs of a queue that run.
func executing(ctx context.Context, asking *client.Client, queue string) ([]string, error) {
	var ids []string
	for rec, err := range asking.List(ctx, operation.ListRequest{Queue: queue, State: jobs.Executing}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, rec.ID)
	}
	return ids, nil
}
