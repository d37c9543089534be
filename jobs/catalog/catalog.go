// Package catalog answers questions about all jobs that a pool keeps: which there are, how
// many, and what keeps one of them.
//
//	question ─▶ Catalog ─▶ the leader's Index ─▶ ids, counts ─▶ records of one page
//	               └─ no leader answers ─▶ an Index of all records, made here
//
// The leader sees each change of a record, so it keeps an [Index] of all jobs up to date,
// and answers from that: what a question costs does not grow with the number of jobs that
// are kept. It answers when the index has all that was stored when it was asked, so that a
// client finds what it has just submitted. While there is no leader, or none that has built
// its index yet, the asker reads all records into an index of its own, of which it keeps no
// more than the leader does; the answer is the same.
package catalog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/question"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/standing"
	"github.com/penstock-run/penstock/jobs/why"
)

// pageNames is how many queues or batches one answer of the leader has at most.
const pageNames = 1000

// What the leader can be asked.
const (
	askList    = "list"
	askQueues  = "queues"
	askBatches = "batches"
	askWhy     = "why"
)

// A Selection selects jobs and says which of them, in which order.
type Selection struct {
	record.Filter
	After  string // an id: what comes behind it
	Newest bool   // the newest first
	Limit  int    // how many at most
}

// matchGroup reports whether the jobs of a group may be selected.
func (s Selection) matchGroup(g groupKey) bool {
	return (s.Batch == "" || g.batch == s.Batch) && (s.Queue == "" || g.queue == s.Queue) &&
		(s.State == "" || g.state == s.State) && (s.Outcome == "" || g.outcome == s.Outcome) && (s.Review == "" || g.review == s.Review) &&
		!(s.Unfinished && g.state == jobs.Finished)
}

// question is what the leader is asked for the jobs that are selected.
func (s Selection) question() *listQuestion {
	return &listQuestion{s.Batch, s.Queue, s.Session, s.State, s.Outcome, s.Since.UTC(), s.After, s.Newest, s.Limit, s.Unfinished, s.Review}
}

// asked is what the leader is asked for: what to list, the one batch or the job that is
// meant, or the name behind which a list goes on.
type asked struct {
	List  *listQuestion `json:"list,omitempty"`
	One   string        `json:"one,omitempty"`
	After string        `json:"after,omitempty"`
}

// listQuestion is a [Selection] on the wire.
type listQuestion struct {
	Batch   string       `json:"batch,omitempty"`
	Queue   string       `json:"queue,omitempty"`
	Session string       `json:"session,omitempty"`
	State   jobs.State   `json:"state,omitempty"`
	Outcome jobs.Outcome `json:"outcome,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	After   string       `json:"after,omitempty"`
	Newest  bool         `json:"newest,omitempty"`
	Limit   int          `json:"limit"`
	// Unfinished is set for jobs that have not finished.
	Unfinished bool             `json:"unfinished,omitempty"`
	Review     jobs.ReviewState `json:"review,omitempty"`
}

// listed has the ids of one page, and says whether more jobs follow.
type listed struct {
	IDs  []string `json:"ids"`
	More bool     `json:"more,omitempty"`
}

// A Catalog asks about the jobs of a pool. Its methods may be called from any goroutine.
type Catalog struct {
	queue *queue.Queue
	own   *ownIndex
}

// New returns the catalog of a queue's jobs. It does no I/O.
func New(q *queue.Queue) *Catalog { return &Catalog{queue: q, own: newOwnIndex(q)} }

// ask asks the leader, and reports whether it has answered.
func (c *Catalog) ask(ctx context.Context, kind string, what asked, answer any) bool {
	return c.queue.Questions().Ask(ctx, kind, what, answer) == nil
}

// List returns the jobs that are selected, and whether there are more behind them.
func (c *Catalog) List(ctx context.Context, s Selection) (found []jobs.Record, more bool, err error) {
	most := s.Limit
	for {
		s.Limit = most - len(found)
		page, err := c.page(ctx, s)
		if err != nil {
			return nil, false, err
		}
		records, err := c.queue.Records(ctx, page.IDs)
		if err != nil {
			return nil, false, err
		}
		// What has changed since it was selected may not be meant any more.
		for _, rec := range records {
			if s.Match(rec) {
				found = append(found, rec)
			}
		}
		if !page.More || len(found) == most || len(page.IDs) == 0 {
			return found, page.More, nil
		}
		s.After = page.IDs[len(page.IDs)-1]
	}
}

// page returns the ids of the jobs that a selection may mean.
func (c *Catalog) page(ctx context.Context, s Selection) (page listed, err error) {
	if c.ask(ctx, askList, asked{List: s.question()}, &page) {
		return page, nil
	}
	x, err := c.own.current(ctx)
	if err != nil {
		return listed{}, err
	}
	ids, more := x.list(s)
	return listed{ids, more}, nil
}

// All returns all jobs that a filter selects, in the order of their submission.
func (c *Catalog) All(ctx context.Context, f record.Filter) ([]jobs.Record, error) {
	var all []jobs.Record
	s := Selection{Filter: f, Limit: operation.MaxPage}
	for {
		part, more, err := c.List(ctx, s)
		all = append(all, part...)
		if err != nil || !more || len(part) == 0 {
			return all, err
		}
		s.After = part[len(part)-1].ID
	}
}

// Queues counts the jobs of each queue that has some, by name.
func (c *Catalog) Queues(ctx context.Context) ([]operation.Queue, error) {
	var all []operation.Queue
	for after := ""; ; after = all[len(all)-1].Queue {
		var part []operation.Queue
		if !c.ask(ctx, askQueues, asked{After: after}, &part) {
			x, err := c.own.current(ctx)
			if err != nil {
				return nil, err
			}
			part = x.queues(after)
		}
		if all = append(all, part...); len(part) < pageNames {
			return all, nil
		}
	}
}

// Batches counts the jobs of each batch, or of the one that is named, by name.
func (c *Catalog) Batches(ctx context.Context, one string) ([]operation.Batch, error) {
	var all []operation.Batch
	for after := ""; ; after = all[len(all)-1].Batch {
		var part []operation.Batch
		if !c.ask(ctx, askBatches, asked{One: one, After: after}, &part) {
			x, err := c.own.current(ctx)
			if err != nil {
				return nil, err
			}
			part = x.batches(one, after)
		}
		if all = append(all, part...); len(part) < pageNames {
			return all, nil
		}
	}
}

// Why says what keeps a job where it is.
func (c *Catalog) Why(ctx context.Context, id string) (why.Standing, error) {
	id, err := c.queue.Resolve(ctx, id)
	if err != nil {
		return why.Standing{}, err
	}
	var answer why.Standing
	if c.ask(ctx, askWhy, asked{One: id}, &answer) {
		return answer, nil
	}
	return c.queue.Standings().Why(ctx, id, nil)
}

// answer returns what answers questions of one kind, when caught has returned.
func answer[Q any](caught func(context.Context) error, do func(context.Context, Q) (any, error)) question.Answer {
	return func(ctx context.Context, data []byte) (any, error) {
		var what Q
		if err := json.Unmarshal(data, &what); err != nil {
			return nil, err
		}
		if err := caught(ctx); err != nil {
			return nil, err
		}
		return do(ctx, what)
	}
}

// Serve answers the questions of a pool's processes from an index until ctx ends. Open knows
// the jobs that have not ended. Caught returns when both know all that was stored when it
// was called.
func Serve(ctx context.Context, q *queue.Queue, x *Index, open standing.Unfinished, caught func(context.Context) error) error {
	return q.Questions().Serve(ctx, map[string]question.Answer{
		askList: answer(caught, func(_ context.Context, what asked) (any, error) {
			if what.List == nil {
				return nil, jobs.ErrNotFound
			}
			ids, more := x.list(what.List.selection())
			return listed{ids, more}, nil
		}),
		askQueues:  answer(caught, func(_ context.Context, what asked) (any, error) { return x.queues(what.After), nil }),
		askBatches: answer(caught, func(_ context.Context, what asked) (any, error) { return x.batches(what.One, what.After), nil }),
		askWhy:     answer(caught, func(ctx context.Context, what asked) (any, error) { return q.Standings().Why(ctx, what.One, open) }),
		question.Resolve: answer(caught, func(_ context.Context, text string) (any, error) {
			ids, n := x.resolve(text, record.AmbiguousShown)
			return question.Resolved{IDs: ids, Count: n}, nil
		}),
	})
}

func (l listQuestion) selection() Selection {
	return Selection{
		Filter: record.Filter{Batch: l.Batch, Queue: l.Queue, Session: l.Session, State: l.State, Outcome: l.Outcome, Since: l.Since, Unfinished: l.Unfinished},
		After:  l.After, Newest: l.Newest, Limit: min(max(l.Limit, 1), operation.MaxPage),
	}
}
