package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

func (s *Server) deadList(ctx context.Context, c caller, r operation.DeadRequest) (operation.DeadPage, error) {
	letters, err := s.cfg.Queue.DeadLetters().List(ctx)
	if err != nil {
		return operation.DeadPage{}, err
	}
	place := func(l jobs.DeadLetter) mark { return mark{l.ID, int64(l.Seq)} }
	letters = afterMark(letters, r.After, place)
	letters = slices.DeleteFunc(letters, func(l jobs.DeadLetter) bool { return !r.Selects(l) })
	part, more, err := page(letters, r.Limit, c.room)
	answer := operation.DeadPage{Letters: part}
	if more {
		answer.Next = place(part[len(part)-1]).cursor()
	}
	return answer, err
}

// letter finds a dead letter by its id, or by the beginning that only it has.
func (s *Server) letter(ctx context.Context, id string) (jobs.DeadLetter, error) {
	whole, err := s.cfg.Queue.DeadLetters().Get(ctx, id)
	if !errors.Is(err, jobs.ErrNotFound) {
		return whole, err
	}
	letters, err := s.cfg.Queue.DeadLetters().List(ctx)
	if err != nil {
		return jobs.DeadLetter{}, err
	}
	found := jobs.MatchLetters(letters, id)
	switch len(found) {
	case 0:
		return jobs.DeadLetter{}, fmt.Errorf("%w: there is no dead letter %q", jobs.ErrNotFound, id)
	case 1:
		return found[0], nil
	}
	return jobs.DeadLetter{}, fmt.Errorf("%w: %d dead letters begin with %q: use more characters of the id", jobs.ErrNotFound, len(found), id)
}

func (s *Server) deadGet(ctx context.Context, _ caller, r operation.DeadShowRequest) (operation.DeadShown, error) {
	l, err := s.letter(ctx, r.ID)
	if err != nil {
		return operation.DeadShown{DeadLetter: l}, err
	}
	shown := operation.DeadShown{DeadLetter: l}
	if l.Kind != jobs.DeadJob {
		return shown, nil
	}
	if cause, ok := jobs.Reasons[l.Record.Reason]; ok {
		shown.Cause = &cause
	}
	job, err := s.cfg.Queue.Job(ctx, l.ID)
	switch {
	case err == nil:
		shown.Job = &job
	case !errors.Is(err, jobs.ErrNotFound): // a letter is kept longer than its job
		return shown, err
	}
	for event, err := range s.cfg.Log.Read(ctx, l.Record.Session, 1) {
		if err != nil {
			return shown, fmt.Errorf("events of job %s: %w", l.ID, err)
		}
		if event.Job == l.ID {
			shown.Events = append(shown.Events, event)
		}
		if over := len(shown.Events) - max(r.Events, 0); over > 0 {
			shown.Events = shown.Events[over:]
		}
	}
	return shown, nil
}

// deadRetry brings a dead job back, or submits a refused submission again.
func (s *Server) deadRetry(ctx context.Context, c caller, r operation.DeadRetryRequest) (operation.DeadDone, error) {
	l, err := s.letter(ctx, r.ID)
	if err != nil {
		return operation.DeadDone{}, err
	}
	done := operation.DeadDone{ID: l.ID, Kind: l.Kind}
	switch l.Kind {
	case jobs.DeadJob:
		rec, err := s.cfg.Dispatcher.Retry(ctx, l.ID, c.name(), r.FromSalvage)
		done.Did, done.Job = "retried", rec.ID
		return done, err
	case jobs.DeadSubmission:
		done.Did = "submitted"
		done.Job, err = s.resubmit(ctx, c, l)
		return done, err
	}
	return done, &jobs.CodedError{Code: jobs.CodeNotRetryable, Message: fmt.Sprintf("dead letter %s is not of a job, and can only be dropped", l.ID)}
}

// resubmit submits what was refused, and drops its letter when that is accepted.
func (s *Server) resubmit(ctx context.Context, c caller, l jobs.DeadLetter) (string, error) {
	job, err := l.Submission()
	if err != nil {
		return "", err
	}
	// This may be asked twice, or end half way; one job comes of it. A signed job has
	// its id for that, and would not be the signed one with another key.
	if job.Signature == nil {
		job.Key = cmp.Or(job.Key, l.RetryKey())
	}
	submitted, err := s.cfg.Dispatcher.Submit(ctx, job.In(c.trace), c.name())
	if err != nil {
		return "", err
	}
	return submitted.ID, s.cfg.Queue.DeadLetters().Drop(ctx, l)
}

func (s *Server) deadDrop(ctx context.Context, _ caller, r operation.Ref) (operation.DeadDone, error) {
	l, err := s.letter(ctx, r.ID)
	if err != nil {
		return operation.DeadDone{}, err
	}
	return operation.DeadDone{ID: l.ID, Kind: l.Kind, Did: "dropped"}, s.cfg.Queue.DeadLetters().Drop(ctx, l)
}
