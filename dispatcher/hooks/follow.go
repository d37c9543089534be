package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/expr-lang/expr"

	"github.com/penstock-run/penstock/dispatcher/mark"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
)

// A Pool has the jobs that rules with follow have made.
type Pool interface {
	// List returns the jobs in a state of which keep is true.
	List(ctx context.Context, state jobs.State, keep func(jobs.Record) bool) ([]jobs.Record, error)
	Get(ctx context.Context, id string) (jobs.Record, error)
	// Asked returns what a job's agents have asked.
	Asked(ctx context.Context, rec jobs.Record) ([]dialog.Asked, error)
	Cancel(ctx context.Context, id string) error
	// Send gives a message to a job's agent. The same id again has no second effect.
	Send(ctx context.Context, id string, m control.Message) error
}

const (
	// clocks is how far GitHub's clock and the pool's may be apart.
	clocks = time.Minute
	// readyWithin is how long a comment waits for an agent that begins or ends just now, and
	// readyAgain how often it is tried.
	readyWithin = 4 * time.Second
	readyAgain  = 200 * time.Millisecond
	// maxRemarks is how many comments of a review are read.
	maxRemarks = 100
)

// What was done because of a delivery.
const (
	doneCancel = "cancelled"
	doneAnswer = "answered"
	donePrompt = "continued"
)

func ignored(format string, args ...any) (answer, bool) {
	return answer{status: http.StatusAccepted, Ignored: fmt.Sprintf(format, args...)}, true
}

func unavailable(err error) (answer, bool) {
	return refuse(http.StatusServiceUnavailable, "%v", err), true
}

func done(rec jobs.Record, what string) (answer, bool) {
	return answer{status: http.StatusAccepted, about: []any{"job", rec.ID, "session", rec.Session, "done", what}, Job: rec.ID, Done: what}, true
}

// follow does what a delivery means to a job that the rule has made before. It reports false
// for one that means nothing to any.
func (s *Server) follow(ctx context.Context, h *hook, d delivery) (answer, bool) {
	n, ok := readNews(d)
	if !ok {
		return answer{}, false
	}
	switch n.kind {
	case closed:
		return s.cancel(ctx, h, n)
	case replied:
		return s.reply(ctx, h, d, n)
	}
	return s.change(ctx, h, d, n)
}

// of reports whether a job is one of the rule's, for an issue.
func (h *hook) of(rec jobs.Record, page string) bool {
	return rec.Labels[mark.HookLabel] == h.name && rec.Labels[mark.IssueLabel] == page
}

func (s *Server) list(ctx context.Context, states []jobs.State, keep func(jobs.Record) bool) (all []jobs.Record, err error) {
	for _, state := range states {
		list, err := s.cfg.Pool.List(ctx, state, keep)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// cancel ends the jobs of an issue that was closed. Whoever may close it, GitHub knows.
func (s *Server) cancel(ctx context.Context, h *hook, n news) (answer, bool) {
	list, err := s.list(ctx, []jobs.State{jobs.Waiting, jobs.Delayed, jobs.Pending, jobs.Executing}, func(rec jobs.Record) bool {
		// What was made since is for an issue that was opened again.
		return h.of(rec, n.page) && !rec.Submitted.After(n.at.Add(clocks))
	})
	if err != nil {
		return unavailable(err)
	}
	if len(list) == 0 {
		return answer{}, false
	}
	for _, rec := range list {
		if err := s.cfg.Pool.Cancel(ctx, rec.ID); err != nil && !errors.Is(err, jobs.ErrFinished) {
			return unavailable(err)
		}
	}
	return done(list[0], doneCancel)
}

// speaks reports whether a comment counts: whether it is of a person who may cause jobs by
// the rule, and not the pool's own.
func (s *Server) speaks(ctx context.Context, h *hook, d delivery) (a answer, refused bool) {
	err := h.permits(ctx, s.cfg.Client, d)
	switch {
	case err == nil:
		return a, false
	case errors.Is(err, errNotPermitted):
		return ignored("%v", err)
	}
	return unavailable(err)
}

// reply takes a comment on an issue for the answer to the oldest question that is open.
func (s *Server) reply(ctx context.Context, h *hook, d delivery, n news) (answer, bool) {
	list, err := s.list(ctx, []jobs.State{jobs.Executing, jobs.Waiting}, func(rec jobs.Record) bool {
		return h.of(rec, n.page) && (rec.Asks != nil || rec.Asking())
	})
	if err != nil {
		return unavailable(err)
	}
	if len(list) == 0 {
		return answer{}, false
	}
	if a, refused := s.speaks(ctx, h, d); refused {
		return a, true
	}
	rec := slices.MaxFunc(list, func(a, b jobs.Record) int { return a.Submitted.Compare(b.Submitted) })
	asked, err := s.cfg.Pool.Asked(ctx, rec)
	if err != nil {
		return unavailable(err)
	}
	open := slices.IndexFunc(asked, dialog.Asked.Open)
	if open < 0 || n.at.Before(asked[open].Opened.Add(-clocks)) {
		return ignored("job %s asked nothing when it was written", rec.ID)
	}
	m, ok := answerTo(asked[open].Ask, n.comment)
	if !ok {
		return ignored("it is no answer to the question of job %s", rec.ID)
	}
	return s.send(ctx, d, n, rec, m)
}

// change takes comments on a pull request for what its agent is to change.
func (s *Server) change(ctx context.Context, h *hook, d delivery, n news) (answer, bool) {
	rec, err := s.madeBy(ctx, h, n)
	if err != nil {
		return unavailable(err)
	}
	if rec.ID == "" {
		return answer{}, false
	}
	var asks []remark
	if n.insists && n.comment != "" || h.asks(d, n.comment) {
		asks = append(asks, remark{Body: n.comment})
	}
	if len(asks) == 0 && n.review == 0 {
		return ignored("comments is not true of it")
	}
	if a, refused := s.speaks(ctx, h, d); refused {
		return a, true
	}
	if n.review != 0 {
		inside, err := h.remarks(ctx, s.cfg.Client, d, n)
		if err != nil {
			return unavailable(err)
		}
		asks = append(asks, inside...)
	}
	if len(asks) == 0 {
		return ignored("comments is not true of it")
	}
	return s.send(ctx, d, n, rec, control.Message{Verb: control.Prompt, Text: promptOf(d.sender, asks)})
}

// madeBy returns the job whose pull request it is about; one without an id: there is none.
// The pull request names it, and anybody may write that: the record decides.
func (s *Server) madeBy(ctx context.Context, h *hook, n news) (jobs.Record, error) {
	for _, id := range mark.Jobs(n.text) {
		rec, err := s.cfg.Pool.Get(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrPurged):
		case err != nil:
			return jobs.Record{}, err
		case rec.Labels[mark.HookLabel] == h.name && rec.PullRequest != nil && rec.PullRequest.Number == n.number && rec.PullRequest.URL == n.page:
			return rec, nil
		}
	}
	return jobs.Record{}, nil
}

// asks reports whether a comment asks for a change.
func (h *hook) asks(d delivery, comment string) bool {
	if comment == "" {
		return false
	}
	about := d.environment()
	about["comment"] = comment
	said, err := expr.Run(h.comments, about)
	is, ok := said.(bool)
	return err == nil && ok && is
}

// remarks reads the comments of a review on lines of the change, as far as they ask for one.
func (h *hook) remarks(ctx context.Context, client *http.Client, d delivery, n news) ([]remark, error) {
	path := fmt.Sprintf("/repos/%s/pulls/%d/reviews/%d/comments?per_page=%d", segments(d.path), n.number, n.review, maxRemarks)
	status, body, err := h.ask(ctx, client, path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	var list []remark
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for the comments of a review: %w", h.API, err)
	}
	return slices.DeleteFunc(list, func(r remark) bool {
		return r.Body == "" || mark.IsOwn(r.Body) || !n.insists && !h.asks(d, r.Body)
	}), nil
}

// send gives a message to the agent, once. One that begins or ends just now is given a moment.
func (s *Server) send(ctx context.Context, d delivery, n news, rec jobs.Record, m control.Message) (answer, bool) {
	m.ID, m.By = n.messageID(n.page), "github:"+oneLine(d.sender)
	limited, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := s.cfg.Pool.Send(ctx, rec.ID, m)
		refused, ok := errors.AsType[*control.RefusedError](err)
		switch {
		case err == nil && m.Verb == control.Prompt:
			return done(rec, donePrompt)
		case err == nil:
			return done(rec, doneAnswer)
		case jobs.Code(err) == jobs.CodeInvalid, ok && !slices.Contains([]control.Refusal{control.NotReady, control.Busy, control.Lost}, refused.Code):
			return refuse(http.StatusUnprocessableEntity, "%v", err), true
		case !ok:
			return unavailable(err)
		}
		select {
		case <-time.After(readyAgain):
		case <-limited.Done():
			return unavailable(err)
		}
	}
}
