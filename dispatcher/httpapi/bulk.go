package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/penstock-run/penstock/dispatcher/internal/bulk"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
)

const (
	// bulkMost bounds the jobs that one request changes.
	bulkMost = 200
	// bulkTime is how much longer than others such a request may take.
	bulkTime = time.Minute
)

// A bulkRequest selects jobs, as a list does, and says how many there are.
type bulkRequest struct {
	Batch   string       `json:"batch,omitempty" jsonschema:"Of this batch."`
	Queue   string       `json:"queue,omitempty" jsonschema:"Of this queue."`
	State   jobs.State   `json:"state,omitempty" jsonschema:"In this state."`
	Outcome jobs.Outcome `json:"outcome,omitempty" jsonschema:"With this outcome."`
	Reason  jobs.Reason  `json:"reason,omitempty" jsonschema:"That ended for this reason."`
	Since   *time.Time   `json:"since,omitempty" jsonschema:"Submitted since then."`
	Expect  int          `json:"expect,omitempty" jsonschema:"How many jobs may be changed: the matched of a request with dry_run. If there are more now, none is."`
	After   string       `json:"after,omitempty" jsonschema:"The next of the answer before."`
}

// A bulkAnswer says what became of the jobs that were selected.
type bulkAnswer struct {
	Matched int            `json:"matched" jsonschema:"How many jobs were selected that can be changed so."`
	Changed int            `json:"changed" jsonschema:"How many of them were."`
	Refused []bulk.Refused `json:"refused,omitempty" jsonschema:"Those that could not be, since they had changed meanwhile."`
	Next    string         `json:"next,omitempty" jsonschema:"There if jobs are left: what the next request has as after."`
}

// changeMany changes the jobs that a request selects, some of them at once, or only counts
// them.
func changeMany(change bulk.Change) func(*Server, *call, Route) error {
	return func(s *Server, c *call, _ Route) error {
		var dry bool
		if err := c.params(map[string]any{"dry_run": &dry}); err != nil {
			return err
		}
		var request bulkRequest
		if err := jobs.DecodeBounded(c.body, &request, maxBody); err != nil {
			if wrong, ok := errors.AsType[*jobs.InvalidError](err); ok {
				wrong.What = "request"
			}
			return err
		}
		if err := request.check(dry); err != nil {
			return err
		}
		_ = c.control().SetWriteDeadline(time.Now().Add(bulkTime + c.patience)) // every connection of ours has one
		ctx, done := context.WithTimeout(c.r.Context(), bulkTime)
		defer done()
		selected, err := request.selected(ctx, s.asking(c), change)
		if err != nil {
			return err
		}
		answer := bulkAnswer{Matched: len(selected)}
		if dry {
			return c.json(http.StatusOK, answer)
		}
		if len(selected) > request.Expect {
			return refused(codeChanged, "%d jobs are selected, and only %d may be changed: none was", len(selected), request.Expect)
		}
		if len(selected) > bulkMost {
			answer.Next, selected = selected[bulkMost-1], selected[:bulkMost]
		}
		answer.Changed, answer.Refused, err = bulk.Apply(selected, func(id string) error { return change.Do(ctx, s.asking(c), id) })
		if err != nil {
			return fmt.Errorf("%d jobs were changed; the same request goes on: %w", answer.Changed, err)
		}
		return c.json(http.StatusOK, answer)
	}
}

// check refuses a request that selects everything, and one that does not say how many.
func (r bulkRequest) check(dry bool) error {
	if r.Batch == "" && r.Queue == "" && r.State == "" && r.Outcome == "" && r.Reason == "" && r.Since == nil {
		return invalid("(body)", "selects all jobs: give at least one of batch, queue, state, outcome, reason, since")
	}
	// One that is mistyped would match nothing, which looks like nothing to do.
	if states := []jobs.State{"", jobs.Pending, jobs.Delayed, jobs.Executing, jobs.Waiting, jobs.Finished}; !slices.Contains(states, r.State) {
		return invalid("state", fmt.Sprintf("is not one of %s", states[1:]))
	}
	if outcomes := []jobs.Outcome{"", jobs.Success, jobs.Failure, jobs.Error, jobs.TimedOut, jobs.Cancellation, jobs.Skip}; !slices.Contains(outcomes, r.Outcome) {
		return invalid("outcome", fmt.Sprintf("is not one of %s", outcomes[1:]))
	}
	if r.Expect < 0 || r.Expect == 0 && !dry {
		return invalid("expect", "is to be the number of jobs that may be changed: dry_run=true counts them")
	}
	return nil
}

// selected returns the ids of the jobs that a request is for.
func (r bulkRequest) selected(ctx context.Context, asking *client.Client, change bulk.Change) ([]string, error) {
	var ids []string
	found, err := change.Select(ctx, asking, bulk.Selector{Batch: r.Batch, Queue: r.Queue, State: r.State, Outcome: r.Outcome, Reason: r.Reason, Since: r.Since})
	for _, rec := range found {
		if rec.ID > r.After {
			ids = append(ids, rec.ID)
		}
	}
	return ids, err
}
