// Package batch submits many jobs that were sent as one text, a job in each line.
//
//	text ─Read─▶ jobs, or the lines that are none ─Submit─▶ how many are new
//
// All lines are read before the first job is submitted. The key of each job is made of
// the batch and the item, so what was interrupted is repeated, and no job comes twice.
package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
)

const (
	// MaxBytes bounds the text of a batch.
	MaxBytes = 16 << 20
	// Within is how long the jobs of a batch may take to be submitted.
	Within = 5 * time.Minute

	maxItems = 10_000
	// atOnce is how many jobs are on their way at once.
	atOnce = 16
	// mostWrong is how many wrong lines are told: what is wrong with one is often wrong
	// with each.
	mostWrong = 20
)

// Submitted says what became of a batch that was submitted.
type Submitted struct {
	Batch     string   `json:"batch" jsonschema:"Its name."`
	Jobs      int      `json:"jobs" jsonschema:"How many jobs the body has."`
	Submitted int      `json:"submitted" jsonschema:"How many of them are new."`
	Differ    []string `json:"differ,omitempty" jsonschema:"Items whose job the pool has already, and that differ from it: that one stays as it is."`
}

// Read reads a job from each line, with the defaults for what a line leaves out. A
// [*jobs.InvalidError] says which lines are none.
func Read(r io.Reader, defaults jobs.Job) ([]intake.Item, error) {
	read, err := intake.Read(r, "(body)", intake.Options{Format: "jsonl", Defaults: defaults, Limits: intake.Limits{Items: maxItems, Bytes: MaxBytes}})
	if wrong, ok := errors.AsType[*intake.InputError](err); ok {
		return nil, wrongLines([]error{wrong})
	}
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, item := range read.Errors() {
		wrong = append(wrong, item.Err)
	}
	if len(wrong) > 0 {
		return nil, wrongLines(wrong)
	}
	return read.Items, nil
}

// wrongLines is the error of a text with lines that are no jobs.
func wrongLines(errs []error) error {
	invalid := &jobs.InvalidError{What: "batch"}
	for _, err := range errs[:min(len(errs), mostWrong)] {
		field := jobs.FieldError{Field: "(body)", Reason: err.Error()}
		if wrong, ok := errors.AsType[*intake.InputError](err); ok {
			field.Reason = wrong.Reason
			if wrong.Line > 0 {
				field.Field = fmt.Sprintf("line %d", wrong.Line)
			}
		}
		invalid.Fields = append(invalid.Fields, field)
	}
	if more := len(errs) - len(invalid.Fields); more > 0 {
		invalid.Fields = append(invalid.Fields, jobs.FieldError{Field: "(body)", Reason: fmt.Sprintf("has %d more lines that are wrong", more)})
	}
	return invalid
}

// Submit submits the jobs of a batch. An error says how many the pool has taken.
func Submit(ctx context.Context, asking *client.Client, name string, items []intake.Item) (Submitted, error) {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	made := Submitted{Batch: name, Jobs: len(items)}
	differ := make([]string, len(items))
	var taken, fresh atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, item := range items {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			item.Job.Batch, item.Job.Key = name, name+"/"+item.ID
			job, err := json.Marshal(item.Job)
			if err != nil {
				return err
			}
			one, err := asking.SubmitJSON(ctx, job)
			if err != nil {
				return fmt.Errorf("line %d: %w", item.Line, err)
			}
			taken.Add(1)
			if !one.Duplicate {
				fresh.Add(1)
			}
			if len(one.Differs) > 0 {
				differ[i] = item.ID
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return made, &jobs.CodedError{
			Code: cmp.Or(jobs.Code(err), jobs.CodeInternal), Cause: err,
			Message: fmt.Sprintf("the pool has taken %d of %d jobs; the same request again submits the others: %v", taken.Load(), len(items), err),
		}
	}
	made.Submitted = int(fresh.Load())
	made.Differ = slices.DeleteFunc(differ, func(item string) bool { return item == "" })
	return made, nil
}
