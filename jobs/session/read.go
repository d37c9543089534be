package session

import (
	"context"
	"errors"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Read returns the events of a session that are stored now, from the number
// from on. A session without events yields none.
func (l *Log) Read(ctx context.Context, session string, from uint64) iter.Seq2[jobs.Event, error] {
	return l.events(ctx, session, from, func(r wire.Range) iter.Seq2[wire.Message, error] { return r.Data(ctx, l.conn) })
}

// FollowOptions say when a [Log.Follow] ends by itself.
type FollowOptions struct {
	// Job ends it after the terminal event of this job, unless the job was
	// tried again since.
	Job string
	// Record, if not nil, reads the record of Job. A job may have finished without
	// an event that says so: retention removed it, or the program that finished
	// the job wrote none. So while no terminal event comes, the record is read
	// now and then, and the following ends when the record says finished.
	Record func(context.Context) (jobs.Record, error)
	// Caught, if not nil, is called each time that everything stored so far
	// has been yielded.
	Caught func()
}

// Follow returns the events of a session from the number from on: first what
// is stored, then what comes, each once and in order. It goes on through
// reconnects and restarts of the broker, and ends when ctx ends.
func (l *Log) Follow(ctx context.Context, session string, from uint64, opts FollowOptions) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		// Between a job's terminal event and the end of what is stored there
		// may be its next beginning, after a retry. So what follows is held
		// until it is known which it is.
		var held []jobs.Event
		over, err := l.over(ctx, session, from, opts.Job)
		if err != nil {
			if ctx.Err() == nil {
				yield(jobs.Event{}, err)
			}
			return
		}
		defer l.questions.join(opts.Job)()
		silent := silentEnd{job: opts.Job, record: opts.Record, shared: &l.questions}
		caught := func() bool {
			if opts.Caught != nil && !over {
				opts.Caught()
			}
			return !over && !silent.reached(ctx)
		}
		tail := func(r wire.Range) iter.Seq2[wire.Message, error] {
			return l.conn.Tail(ctx, r, l.names.Stored(l.cfg.Tenant, session), caught)
		}
		for e, err := range l.events(ctx, session, from, tail) {
			if err == nil && over {
				// A message alone does not bring the job back: its sender may
				// have died before that.
				if held = append(held, e); e.Job != opts.Job || e.Kind == jobs.InputState {
					continue
				}
				over = false
				for _, h := range held[:len(held)-1] {
					if !yield(h, nil) {
						return
					}
				}
				held = nil
			}
			if !yield(e, err) || err != nil {
				return
			}
			over = opts.Job != "" && e.Kind == jobs.JobFinished && e.Job == opts.Job
		}
	}
}

// over reports whether the job's terminal event stands before the number from,
// and is the session's last but for messages that have brought nothing back:
// then there is nothing to wait for.
func (l *Log) over(ctx context.Context, session string, from uint64, job string) (bool, error) {
	if job == "" || from <= 1 {
		return false, nil
	}
	last, err := l.end(ctx, session)
	if err != nil || last.seq >= from || last.event.Job != job {
		return false, err
	}
	if last.event.Kind != jobs.InputState {
		return last.event.Kind == jobs.JobFinished, nil
	}
	const near = 64 // more messages than that are not left by one that died
	over := false
	for e, err := range l.Read(ctx, session, max(last.seq, near)-near) {
		if err != nil {
			return false, err
		}
		if e.Job == job && e.Kind != jobs.InputState {
			over = e.Kind == jobs.JobFinished
		}
	}
	return over, nil
}

// events decodes the messages that read returns, from an event's number on.
func (l *Log) events(ctx context.Context, session string, from uint64, read func(wire.Range) iter.Seq2[wire.Message, error]) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		if err := jobs.CheckToken("session", session); err != nil {
			yield(jobs.Event{}, err)
			return
		}
		r := wire.Range{Stream: subject.Events, Subject: l.names.SessionEvents(l.cfg.Tenant, session)}
		r, err := l.seek(ctx, r, session, from)
		if err != nil {
			if ctx.Err() == nil {
				yield(jobs.Event{}, err)
			}
			return
		}
		for m, err := range read(r) {
			if err != nil {
				yield(jobs.Event{}, err)
				return
			}
			e, err := decode(m)
			if err == nil && e.Seq < from {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// seek moves the beginning of the range close before an event's number, so
// that to resume a long session does not mean to read all of it. Numbers and
// places grow together, so halving finds it.
func (l *Log) seek(ctx context.Context, r wire.Range, session string, from uint64) (wire.Range, error) {
	const near = 256
	if from <= near {
		return r, nil
	}
	last, err := l.end(ctx, session)
	if err != nil || last.pos == 0 {
		return r, err
	}
	if last.seq < from {
		r.From = last.pos + 1
		return r, nil
	}
	low, high := uint64(1), last.pos // the position sought is in (low, high]
	for high-low > near {
		middle := low + (high-low)/2
		m, err := l.conn.First(ctx, wire.Range{Stream: r.Stream, Subject: r.Subject, From: middle})
		if errors.Is(err, jobs.ErrNotFound) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		e, err := decode(m)
		if err != nil {
			return r, err
		}
		if e.Seq >= from {
			high = middle
		} else {
			low = middle
		}
	}
	r.From = low
	return r, nil
}
