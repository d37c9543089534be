// Package permit bounds how many jobs run at the same time: it keeps the caps of a pool, and
// which jobs have the permits of each.
//
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
package permit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// Permits are the caps of a pool, and who has their permits. The methods may be called from
// any goroutine.
type Permits struct {
	conn    *wire.Conn
	records record.Store
	rewrite Rewrite
	within  time.Duration
}

// Rewrite writes a record as it is, if it has not changed since it was read.
type Rewrite func(context.Context, record.Entry) (record.Entry, error)

// New returns the permits that a connection leads to. Within is how long a claim may take
// from its permit to its record.
func New(conn *wire.Conn, records record.Store, rewrite Rewrite, within time.Duration) Permits {
	return Permits{conn, records, rewrite, within}
}

// holders are those of the permits of one cap, as they are stored.
type holders struct {
	Key     string   `json:"key"`
	Holders []Holder `json:"holders"`
}

// A Holder is a claim with a permit.
type Holder struct {
	Job string    `json:"job"`
	Rev uint64    `json:"rev"`
	At  time.Time `json:"at"`
}

// Caps returns the caps of the pool.
func (p Permits) Caps(ctx context.Context) (schedule.Caps, error) {
	m, err := p.conn.Last(ctx, subject.KVStream(subject.Settings), subject.CapsKey)
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
func (p Permits) SetCaps(ctx context.Context, caps schedule.Caps) error {
	if err := caps.Check(); err != nil {
		return err
	}
	is, err := p.Caps(ctx)
	if err == nil && !slices.Equal(is, caps) {
		var body []byte
		if body, err = json.Marshal(caps); err == nil {
			err = p.conn.Publish(ctx, &nats.Msg{Subject: subject.CapsKey, Data: body})
		}
	}
	if err != nil {
		return fmt.Errorf("set the caps: %w", err)
	}
	return nil
}

// Take takes the permits that a claim of e needs, one of each cap, and returns the keys of
// the caps. Now is the time of this process. Where one has none left, full is set, and none
// is kept.
func (p Permits) Take(ctx context.Context, caps []schedule.Cap, e record.Entry, now time.Time) (keys []string, full bool, err error) {
	for _, c := range caps {
		ok, err := p.take(ctx, c, e, now)
		if ok {
			keys = append(keys, c.Key)
			continue
		}
		p.GiveBack(ctx, keys, e.ID, e.Rev)
		return nil, err == nil, err
	}
	return keys, false, nil
}

// take takes one permit, and reports whether there was one.
func (p Permits) take(ctx context.Context, c schedule.Cap, e record.Entry, now time.Time) (bool, error) {
	for {
		w, has, err := p.read(ctx, c.Key)
		if err != nil {
			return false, err
		}
		mine := Holder{e.ID, e.Rev, now.UTC()}
		if i := slices.IndexFunc(has.Holders, func(h Holder) bool { return h.Job == e.ID }); i >= 0 {
			has.Holders[i] = mine // of an attempt that was lost, or a claim that failed
		} else {
			if len(has.Holders) >= c.Most {
				if has.Holders, err = p.valid(ctx, has.Holders); err != nil || len(has.Holders) >= c.Most {
					return false, err
				}
			}
			has.Holders = append(has.Holders, mine)
		}
		if err := p.put(ctx, w, has); !errors.Is(err, wire.ErrConflict) {
			return err == nil, err
		}
	}
}

// GiveBack gives permits back that were taken for a revision of a job's record.
func (p Permits) GiveBack(ctx context.Context, keys []string, id string, rev uint64) {
	for _, key := range keys {
		for {
			w, has, err := p.read(ctx, key)
			if err != nil {
				break // the next claimer that needs it strikes it out
			}
			n := len(has.Holders)
			has.Holders = slices.DeleteFunc(has.Holders, func(h Holder) bool { return h.Job == id && h.Rev == rev })
			if len(has.Holders) == n || !errors.Is(p.put(ctx, w, has), wire.ErrConflict) {
				break
			}
		}
	}
}

// Holders returns who has the permits of a cap. Some may not count any more.
func (p Permits) Holders(ctx context.Context, key string) ([]Holder, error) {
	_, has, err := p.read(ctx, key)
	return has.Holders, err
}

// read reads the holders of the permits of a cap, and returns the write that
// would replace them.
func (p Permits) read(ctx context.Context, key string) (wire.Write, holders, error) {
	w := wire.Write{Stream: subject.KVStream(subject.Permits), Subject: subject.Permit(jobs.HashKey("cap", key))}
	has := holders{Key: key}
	m, err := p.conn.Last(ctx, w.Stream, w.Subject)
	if errors.Is(err, jobs.ErrNotFound) {
		return w, has, nil
	}
	w.Expect = m.Seq
	if err == nil && !m.Gone() {
		err = json.Unmarshal(m.Data, &has)
	}
	if err == nil && has.Key != key {
		err = fmt.Errorf("are those of %s", has.Key)
	}
	if err != nil {
		return w, has, fmt.Errorf("permits of cap %s: %w", key, err)
	}
	return w, has, nil
}

func (p Permits) put(ctx context.Context, w wire.Write, has holders) error {
	var err error
	if w.Data, err = json.Marshal(has); err != nil {
		return err
	}
	if len(has.Holders) == 0 {
		w.TTL = time.Hour // there is one for each batch and repository
	}
	_, err = p.conn.Put(ctx, w)
	return err
}

// valid returns the holders whose permits still count.
func (p Permits) valid(ctx context.Context, holders []Holder) ([]Holder, error) {
	var kept []Holder
	for _, h := range holders {
		void, err := p.void(ctx, h)
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
func (p Permits) void(ctx context.Context, h Holder) (bool, error) {
	e, err := p.records.Read(ctx, h.Job)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	case e.State == jobs.Executing:
		return false, nil
	case e.Rev != h.Rev:
		return e.Rev > h.Rev, nil
	case time.Since(h.At) < 2*p.within:
		return false, nil // it is being claimed
	}
	_, err = p.rewrite(ctx, e)
	if errors.Is(err, wire.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
