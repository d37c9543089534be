package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/session"
)

// list returns a page of the jobs that a request selects.
func (s *Server) list(ctx context.Context, c caller, r operation.ListRequest) (operation.Listed, error) {
	wanted := catalog.Selection{
		Filter: record.Filter{Batch: r.Batch, Queue: r.Queue, Session: r.Session, State: r.State, Outcome: r.Outcome, Review: r.Review},
		After:  r.After, Newest: r.Newest, Limit: pageSize(r.Limit),
	}
	if r.Since != nil {
		wanted.Since = r.Since.UTC()
	}
	found, more, err := s.catalog.List(ctx, wanted)
	if err != nil {
		return operation.Listed{}, err
	}
	part, cut, err := page(found, r.Limit, c.room)
	answer := operation.Listed{Jobs: part}
	if cut || more {
		answer.Next = part[len(part)-1].ID
	}
	return answer, err
}

// show returns a job with all that belongs to it, as far as it is still kept.
func (s *Server) show(ctx context.Context, _ caller, r operation.Ref) (operation.Shown, error) {
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	if err != nil {
		return operation.Shown{}, err
	}
	shown := operation.Shown{Record: rec}
	if s.cfg.KeptUntil != nil && rec.State == jobs.Finished {
		until := s.cfg.KeptUntil(rec).UTC()
		shown.KeptUntil = &until
	}
	if cause, ok := jobs.Reasons[rec.Reason]; ok {
		shown.Cause = &cause
	}
	job, err := s.cfg.Queue.Job(ctx, rec.ID)
	switch {
	case err == nil:
		shown.Job = &job
	case !errors.Is(err, jobs.ErrNotFound):
		return shown, err
	}
	if shown.Salvages, err = s.cfg.Store.Salvages(ctx, rec); err != nil || rec.State != jobs.Finished {
		return shown, err
	}
	result, err := s.cfg.Dispatcher.Result(ctx, rec)
	shown.Result = &result
	return shown, err
}

// limited bounds how long an operation waits.
func limited(ctx context.Context, wait jobs.Duration, otherwise time.Duration) (context.Context, context.CancelFunc) {
	limit := min(time.Duration(wait), operation.MaxWait)
	if limit <= 0 {
		limit = otherwise
	}
	return context.WithTimeout(ctx, limit)
}

// wait returns a job's record when it says finished, or when the time is up. The
// session's last event is written after the record; a client that has waited finds it.
func (s *Server) wait(ctx context.Context, _ caller, r operation.WaitRequest) (jobs.Record, error) {
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	if err != nil {
		return rec, err
	}
	if rec.State == jobs.Finished {
		return rec, s.conclude(ctx, rec)
	}
	waiting, done := limited(ctx, r.For, operation.MaxWait)
	defer done()
	now, err := s.cfg.Queue.Wait(waiting, rec.ID)
	switch {
	case err == nil:
		return now, s.conclude(ctx, now)
	case waiting.Err() != nil && ctx.Err() == nil:
		return s.cfg.Queue.Get(ctx, rec.ID)
	}
	return now, err
}

// conclude makes sure that the session has the end of a finished job, unless the
// log has no event of the job any more.
func (s *Server) conclude(ctx context.Context, rec jobs.Record) error {
	last, err := s.cfg.Log.Last(ctx, rec)
	if err != nil || last == nil || last.Kind == jobs.JobFinished {
		return err
	}
	return s.cfg.Log.Finisher(s.cfg.Store.Result)(ctx, rec)
}

// events returns the events of a job's session behind a number. It follows the
// session until it has some, so that callers miss nothing and need not poll.
func (s *Server) events(ctx context.Context, c caller, r operation.EventsRequest) (operation.EventsPage, error) {
	answer := operation.EventsPage{Events: []jobs.Event{}}
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	if err != nil {
		return answer, err
	}
	limit := r.Limit
	if limit <= 0 || limit > operation.MaxPage {
		limit = operation.MaxPage
	}
	following, done := limited(ctx, r.For, operation.MaxWait)
	defer done()
	size, full := 1<<10, false
	opts := session.FollowOptions{
		Job: rec.ID, Record: func(ctx context.Context) (jobs.Record, error) { return s.cfg.Queue.Get(ctx, rec.ID) },
		Caught: func() {
			if r.For <= 0 || len(answer.Events) > 0 {
				done()
			}
		},
	}
	for event, err := range s.cfg.Log.Follow(following, rec.Session, r.After+1, opts) {
		if err != nil {
			return answer, fmt.Errorf("session of job %s: %w", rec.ID, err)
		}
		body, err := json.Marshal(event)
		if err != nil {
			return answer, err
		}
		if size += len(body) + 1; size > c.room && len(answer.Events) > 0 {
			full = true
			break
		}
		answer.Events = append(answer.Events, event)
		if full = len(answer.Events) >= limit; full {
			break
		}
	}
	// Ended by itself, and not by us: nothing comes any more.
	answer.Over = !full && following.Err() == nil
	return answer, ctx.Err()
}

func (s *Server) artifacts(ctx context.Context, _ caller, r operation.ArtifactsRequest) (operation.ArtifactList, error) {
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	if err != nil {
		return operation.ArtifactList{}, err
	}
	if r.Epoch == 0 {
		r.Epoch = rec.Epoch
	}
	list, err := s.cfg.Store.List(ctx, rec.ID, r.Epoch)
	if list == nil {
		list = []jobs.Artifact{}
	}
	return operation.ArtifactList{Epoch: r.Epoch, Artifacts: list}, err
}

// patch returns the patch of a finished job. One that does not fit an answer is in
// the object store, for callers that may read it.
func (s *Server) patch(ctx context.Context, c caller, r operation.Ref) (operation.PatchContent, error) {
	none := operation.PatchContent{Patch: []byte{}}
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	if err != nil {
		return none, err
	}
	if rec.State != jobs.Finished {
		return none, fmt.Errorf("%w: job %s is %s", jobs.ErrNotFinished, rec.ID, rec.State)
	}
	content, err := s.cfg.Store.Get(ctx, rec.ID, rec.Epoch, jobs.PatchName)
	if errors.Is(err, jobs.ErrNotFound) {
		return none, nil // it changed nothing, or there was nothing to compare with
	}
	if err != nil {
		return none, err
	}
	most := int64(c.room/4*3 - 64) // it is sent as base64
	data, err := io.ReadAll(io.LimitReader(content, most+1))
	if err = errors.Join(err, content.Close()); err != nil {
		return none, fmt.Errorf("patch of job %s: %w", rec.ID, err)
	}
	if int64(len(data)) > most {
		return none, &jobs.CodedError{Code: jobs.CodeTooLarge, Message: fmt.Sprintf("the patch of job %s is larger than the %d bytes that a message holds: read artifact %s of epoch %d from the object store", rec.ID, most, jobs.PatchName, rec.Epoch)}
	}
	return operation.PatchContent{Patch: data}, nil
}
