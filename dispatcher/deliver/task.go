package deliver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/webhook"
)

const (
	// recordWithin is how long the record of a job may take behind its first event, and
	// recordAgain how often it is looked for.
	recordWithin = 30 * time.Second
	recordAgain  = 250 * time.Millisecond
)

// A task works on a line once: it tries to deliver the first event, or only stores the
// line. No other one works on the line meanwhile.
type task struct {
	f    *feed
	of   *line
	line webhook.Line // as it was when the task began
	live bool         // the bucket has events of it
	// asked are the requests for an attempt that were known when the task began.
	asked []uint64
}

// A result is what a task has done.
type result struct {
	of      *line
	known   int             // how many events of the line the task knew
	line    webhook.Line    // as it is now, without those that have joined
	settled []webhook.Place // that are to be delivered no more
	live    bool            // the bucket has events of the line
	saved   bool            // the bucket has the line as it is now
	failed  bool            // it was to be stored, and was not
	asked   int             // how many requests for an attempt the task knew
	met     []uint64        // those that the bucket has not any more
	attempt *operation.Delivery
	about   []any // what the log says of the job of an attempt that is given up: names and values
}

func (f *feed) newTask(l *line) task {
	t := task{f: f, of: l, line: l.Line, live: l.live}
	t.line.Events, t.asked = slices.Clone(l.Events), slices.Clone(l.asked) // others join while the task works
	return t
}

func (t task) run(ctx context.Context) result {
	r := result{of: t.of, known: len(t.line.Events), asked: len(t.asked), line: t.line, live: t.live}
	fresh := t.line.Asked() && !t.live
	if !fresh && r.known > 0 && !time.Now().Before(t.line.Next) {
		tried := t.deliver(ctx, &r)
		if tried {
			if err := t.meet(ctx, &r); err != nil {
				t.warn(ctx, "webhook cannot forget what it was asked for", err)
			}
		}
		if !tried || !r.live && r.line.Attempts == 0 {
			return r // in the bucket nothing changes
		}
	}
	saved, err := t.f.d.cfg.Store.SaveLine(ctx, t.f.hook.ID, r.line)
	if err == nil && fresh {
		err = t.meet(ctx, &r)
	}
	if err != nil {
		t.warn(ctx, "webhook cannot store what waits", err)
		r.failed = true
		return r
	}
	r.line, r.live, r.saved = saved, len(saved.Events) > 0, true
	return r
}

// meet forgets the requests for an attempt that was made, or is stored to be made.
func (t task) meet(ctx context.Context, r *result) error {
	for _, seq := range t.asked {
		if err := t.f.d.cfg.Store.TakeAsked(ctx, t.f.hook.ID, seq); err != nil {
			return err
		}
		r.met = append(r.met, seq)
	}
	return nil
}

func (t task) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		t.f.d.log.Warn(what, "webhook", t.f.hook.Name, "err", err)
	}
}

// deliver tries to deliver the first event of the line, and reports whether it came to
// that.
func (t task) deliver(ctx context.Context, r *result) bool {
	first := t.line.Events[0]
	m, err := t.f.d.cfg.Store.Event(ctx, first.Seq)
	gone := errors.Is(err, jobs.ErrNotFound)
	if err != nil && !gone {
		t.warn(ctx, "webhook cannot read an event", err)
		r.line.Next = time.Now().Add(time.Second)
		return false
	}
	if !gone && t.f.hook.Filters() {
		wanted, again, err := t.wanted(ctx, m.Event)
		if err != nil {
			t.warn(ctx, "webhook cannot read the job of an event", err)
		}
		if again > 0 {
			r.line.Next = time.Now().Add(again)
			return false
		}
		if !wanted {
			r.next()
			return true
		}
	}
	at := time.Now().UTC()
	a := answer{err: errors.New("the event is not kept any more")}
	if !gone {
		a = t.f.d.cfg.Sender.send(ctx, t.f.hook, m)
	}
	if ctx.Err() != nil {
		return false // whoever leads then delivers it again
	}
	made := a.delivery(t.f.hook, m, at)
	made.ID, made.Attempt = webhook.DeliveryID(t.f.hook.Name, first.Seq), t.line.Attempts+1
	if wait, more := t.f.d.cfg.schedule.after(made.Attempt); a.err != nil && more && !gone && a.status != 410 {
		made.State = operation.DeliveryRetried
		r.line.Attempts, r.line.Next = made.Attempt, time.Now().UTC().Add(max(wait, a.retryAfter))
		made.Next = &r.line.Next
	} else {
		if a.err != nil {
			made.State, r.about = operation.DeliveryGivenUp, t.about(ctx, made.Job)
		}
		r.next()
	}
	r.attempt = &made
	if err := t.f.d.cfg.Store.Append(ctx, t.f.hook.ID, made); err != nil {
		t.warn(ctx, "webhook cannot keep an attempt", err)
	}
	return true
}

// about returns what the log says of a job: its id alone, if it is not kept any more.
func (t task) about(ctx context.Context, id string) []any {
	rec, err := t.f.d.cfg.Job(ctx, id)
	if err != nil {
		return []any{"job", id}
	}
	return rec.LogFields()
}

// next has the first event be delivered no more, and the one behind it be the next.
func (r *result) next() {
	r.settled = append(r.settled, r.line.Events[0])
	r.line.Events, r.line.Attempts, r.line.Next = r.line.Events[1:], 0, time.Now().UTC()
}

// wanted reports whether the webhook wants the events of a job, or after how long to ask
// again: the first event of a job is stored before its record.
func (t task) wanted(ctx context.Context, e jobs.Event) (wanted bool, again time.Duration, err error) {
	rec, err := t.f.d.cfg.Job(ctx, e.Job)
	switch {
	case err == nil:
		return t.f.hook.Wants(rec), 0, nil
	case !errors.Is(err, jobs.ErrNotFound):
		return false, time.Second, err
	case time.Since(e.Time) < recordWithin:
		return false, recordAgain, nil
	}
	return false, 0, nil
}
