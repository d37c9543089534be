package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Past reads what the log tells of the talk with a job's agents.
func (l *Log) Past(ctx context.Context, session, job string) (*dialog.Past, error) {
	past := &dialog.Past{Job: job}
	for e, err := range l.Read(ctx, session, 1) {
		if err != nil {
			return nil, err
		}
		past.Read(e)
	}
	return past, nil
}

// Accept takes a message for a job that, as rec says, is parked or has finished, so
// that no worker can take it: the log has it when Accept returns, and the next attempt
// reads it there. Of several answers to a question the broker lets the first in.
// Accept returns what the log says then. An error is a [*control.RefusedError], or
// the broker's.
func (l *Log) Accept(ctx context.Context, rec jobs.Record, c control.Message) (control.Receipt, *dialog.Past, error) {
	src := Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Trace: rec.Span(rec.Attempt)}
	for {
		// Read the session's end first: what comes after that is a conflict.
		at, err := l.end(ctx, rec.Session)
		if err != nil {
			return control.Receipt{}, nil, err
		}
		past, err := l.Past(ctx, rec.Session, rec.ID)
		if err != nil {
			return control.Receipt{}, nil, err
		}
		for _, r := range past.Receipts {
			if r.ID == c.ID {
				return r, past, nil
			}
		}
		if past.Attempt > rec.Attempt {
			return control.Receipt{}, nil, control.Refuse(control.NotReady, "job %s goes on just now", rec.ID)
		}
		if c.Verb == control.Answer {
			if c, err = past.Answering(c); err != nil {
				return control.Receipt{}, nil, err
			}
		}
		e := fill(event.New(event.InputState(c.Input())), src, at.seq+1)
		data, err := encode(e)
		if err != nil {
			return control.Receipt{}, nil, err
		}
		_, err = l.conn.PutAll(ctx, at.write(l, src), [][]byte{data})
		if errors.Is(err, wire.ErrConflict) {
			continue
		}
		if err != nil {
			return control.Receipt{}, nil, fmt.Errorf("tell session %s: %w", rec.Session, err)
		}
		past.Read(e)
		return past.Receipts[len(past.Receipts)-1], past, nil
	}
}

// Unheard reports whether a message may have been accepted for a parked job that
// has not been woken: its session does not end with the event that says it waits.
func (l *Log) Unheard(ctx context.Context, rec jobs.Record) (bool, error) {
	at, err := l.end(ctx, rec.Session)
	return err == nil && (at.event.Kind != jobs.JobWaiting || at.event.Job != rec.ID), err
}
