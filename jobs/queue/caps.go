package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// A claimer of a job that a cap bounds takes a permit first. The permits of a
// cap are one value, written by compare-and-set, so there are never more than
// allowed, regardless of who claims where and who leads. A permit is for one
// revision of the record: the one that the claim is about to replace.
//
//   - It counts while the record says executing, or may still be made to say
//     so by that claim: while its revision is the permit's.
//   - Otherwise it is void, and a claimer that finds no room strikes it out.
//     It first rewrites the record of a claimer that died in between, so
//     that one that was only slow fails.
//
// Giving one back is therefore a courtesy, which may be lost.

// capAgain is when a job that found its cap full is offered again. As a rule no
// such job is offered: the leader admits only as many as the cap allows.
const capAgain = time.Second

// permits lists the holders of the permits of one cap.
type permits struct {
	Key     string   `json:"key"`
	Holders []holder `json:"holders"`
}

// A holder is a claim with a permit.
type holder struct {
	Job string    `json:"job"`
	Rev uint64    `json:"rev"`
	At  time.Time `json:"at"`
}

// Caps returns the caps of the pool.
func (q *Queue) Caps(ctx context.Context) (schedule.Caps, error) {
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Settings), subject.CapsKey)
	if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
		return nil, nil
	}
	var caps schedule.Caps
	if err == nil {
		err = json.Unmarshal(m.Data, &caps)
	}
	if err != nil {
		return nil, fmt.Errorf("read the caps: %w", err)
	}
	return caps, nil
}

// SetCaps replaces the caps of the pool. They bound the jobs that begin from
// now on; what runs already is not counted.
func (q *Queue) SetCaps(ctx context.Context, caps schedule.Caps) error {
	if err := caps.Check(); err != nil {
		return err
	}
	is, err := q.Caps(ctx)
	if err == nil && !slices.Equal(is, caps) {
		var body []byte
		if body, err = json.Marshal(caps); err == nil {
			err = q.conn.Publish(ctx, wire.NewMsg(subject.CapsKey, body))
		}
	}
	if err != nil {
		return fmt.Errorf("set the caps: %w", err)
	}
	return nil
}

// permit takes the permits that a claim of e needs, and returns the keys of
// their caps. Full is the cap that has none left; then none is kept.
func (q *Queue) permit(ctx context.Context, d delivery, e record.Entry) (keys []string, full bool, err error) {
	var caps schedule.Caps
	read := d.caps != nil
	if read {
		caps, err = d.caps()
	}
	if !read || err != nil {
		if caps, err = q.Caps(ctx); err != nil {
			return nil, false, err
		}
	}
	for _, c := range caps.Of(e.Record) {
		ok, err := q.acquire(ctx, c, e)
		if ok {
			keys = append(keys, c.Key)
			continue
		}
		q.forgo(ctx, keys, e.ID, e.Rev)
		return nil, err == nil, err
	}
	return keys, false, nil
}

// acquire takes one permit, and reports whether there was one.
func (q *Queue) acquire(ctx context.Context, c schedule.Cap, e record.Entry) (bool, error) {
	for {
		w, p, err := q.permits(ctx, c.Key)
		if err != nil {
			return false, err
		}
		mine := holder{e.ID, e.Rev, time.Now().UTC()}
		if i := slices.IndexFunc(p.Holders, func(h holder) bool { return h.Job == e.ID }); i >= 0 {
			p.Holders[i] = mine // of an attempt that was lost, or a claim that failed
		} else {
			if len(p.Holders) >= c.Most {
				if p.Holders, err = q.valid(ctx, p.Holders); err != nil || len(p.Holders) >= c.Most {
					return false, err
				}
			}
			p.Holders = append(p.Holders, mine)
		}
		if err := q.putPermits(ctx, w, p); !isConflict(err) {
			return err == nil, err
		}
	}
}

// forgo gives permits back that were taken for a revision of a job's record.
func (q *Queue) forgo(ctx context.Context, keys []string, id string, rev uint64) {
	for _, key := range keys {
		for {
			w, p, err := q.permits(ctx, key)
			if err != nil {
				break // the next claimer that needs it strikes it out
			}
			n := len(p.Holders)
			p.Holders = slices.DeleteFunc(p.Holders, func(h holder) bool { return h.Job == id && h.Rev == rev })
			if len(p.Holders) == n || !isConflict(q.putPermits(ctx, w, p)) {
				break
			}
		}
	}
}

// permits reads the holders of the permits of a cap, and returns the write that
// would replace them.
func (q *Queue) permits(ctx context.Context, key string) (wire.Write, permits, error) {
	w := wire.Write{Stream: subject.KVStream(subject.Permits), Subject: subject.Permit(jobs.HashKey("cap", key))}
	p := permits{Key: key}
	m, err := q.conn.Last(ctx, w.Stream, w.Subject)
	if errors.Is(err, jobs.ErrNotFound) {
		return w, p, nil
	}
	w.Expect = m.Seq
	if err == nil && !m.Gone() {
		err = json.Unmarshal(m.Data, &p)
	}
	if err == nil && p.Key != key {
		err = fmt.Errorf("are those of %s", p.Key)
	}
	if err != nil {
		return w, p, fmt.Errorf("permits of cap %s: %w", key, err)
	}
	return w, p, nil
}

func (q *Queue) putPermits(ctx context.Context, w wire.Write, p permits) error {
	var err error
	if w.Data, err = json.Marshal(p); err != nil {
		return err
	}
	if len(p.Holders) == 0 {
		w.TTL = time.Hour // there is one for each batch and repository
	}
	_, err = q.conn.Put(ctx, w)
	return err
}

// valid returns the holders whose permits still count.
func (q *Queue) valid(ctx context.Context, holders []holder) ([]holder, error) {
	var kept []holder
	for _, h := range holders {
		void, err := q.void(ctx, h)
		if err != nil {
			return nil, err
		}
		if !void {
			kept = append(kept, h)
		}
	}
	return kept, nil
}

// void reports whether a permit cannot lead to an executing job any more.
func (q *Queue) void(ctx context.Context, h holder) (bool, error) {
	e, err := q.Read(ctx, h.Job)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	case e.State == jobs.Executing:
		return false, nil
	case e.Rev != h.Rev:
		return e.Rev > h.Rev, nil
	case time.Since(h.At) < 2*decideWithin:
		return false, nil // it is being claimed
	}
	_, err = q.put(ctx, e)
	if isConflict(err) {
		return false, nil
	}
	return err == nil, err
}
