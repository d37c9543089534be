// Package bulk changes many jobs at once: those that a selector matches, once they were
// counted. Each change is an operation of its own, and in the audit log.
//
//	Selector ─Select─▶ jobs that can be changed so ─▶ their number ─▶ Apply ─▶ changed, refused
package bulk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Refused is one that could not be changed.
type Refused struct {
	ID    string         `json:"id" jsonschema:"The job."`
	Code  jobs.ErrorCode `json:"code" jsonschema:"The error's code."`
	Error string         `json:"error" jsonschema:"What is wrong."`
}

// A Change is what is done to each of many jobs, and to which ones it can be done.
type Change struct {
	Row  operation.Row
	able func(jobs.Record) bool
	Do   func(ctx context.Context, asking *client.Client, id string) error
}

// Changes of many jobs.
var (
	Cancel = Change{
		Row:  operation.Cancel.Row,
		able: func(r jobs.Record) bool { return r.State != jobs.Finished && r.Cancel == nil },
		Do: func(ctx context.Context, asking *client.Client, id string) error {
			_, err := asking.Cancel(ctx, id)
			return err
		},
	}
	Retry = Change{
		Row:  operation.Retry.Row,
		able: func(r jobs.Record) bool { return r.State == jobs.Finished && r.Outcome != jobs.Success },
		Do: func(ctx context.Context, asking *client.Client, id string) error {
			_, err := asking.Retry(ctx, id, false)
			return err
		},
	}
)

// A Selector says which jobs. Empty fields select all.
type Selector struct {
	Batch, Queue string
	State        jobs.State
	Outcome      jobs.Outcome
	Reason       jobs.Reason
	Since        *time.Time
	// Matches, if not nil, is what the pool has no filter for.
	Matches func(jobs.Record) bool
}

// Select returns the jobs that a selector matches and that can be changed so, in the order
// of their ids: a job that came back since is not met again behind the last one that was
// changed.
func (c Change) Select(ctx context.Context, asking *client.Client, s Selector) ([]jobs.Record, error) {
	var found []jobs.Record
	list := operation.ListRequest{Batch: s.Batch, Queue: s.Queue, State: s.State, Outcome: s.Outcome, Since: s.Since}
	for rec, err := range asking.List(ctx, list) {
		if err != nil {
			return nil, err
		}
		if c.able(rec) && (s.Reason == "" || rec.Reason == s.Reason) && (s.Matches == nil || s.Matches(rec)) {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b jobs.Record) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

// ofOne are the codes of errors that say something of one alone: mostly, that it has changed
// since it was selected. The others can be changed all the same.
var ofOne = []jobs.ErrorCode{
	jobs.CodeFinished, jobs.CodeNotFinished, jobs.CodeNotRetryable, jobs.CodeNotFound, jobs.CodeInvalid, jobs.CodeExists, jobs.CodeTooLarge,
}

// Apply does something to one after the other, and goes on behind those that cannot be
// changed. Any other error ends it.
func Apply(ids []string, do func(id string) error) (changed int, refused []Refused, err error) {
	for _, id := range ids {
		err := do(id)
		switch code := jobs.Code(err); {
		case err == nil:
			changed++
		case slices.Contains(ofOne, code):
			refused = append(refused, Refused{id, code, err.Error()})
		default:
			return changed, refused, err
		}
	}
	return changed, refused, nil
}
