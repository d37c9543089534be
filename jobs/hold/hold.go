// Package hold keeps the holds of a pool: which queues and batches begin no further jobs,
// until when, and who said so. What a hold does to jobs is the work queue's.
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Holds are those of a pool. The methods may be called from any goroutine.
type Holds struct{ conn *wire.Conn }

// New returns the holds that a connection leads to.
func New(conn *wire.Conn) Holds { return Holds{conn} }

// Check refuses a hold on what cannot be held.
func Check(kind jobs.HoldKind, name string) error {
	if err := jobs.CheckToken(string(kind), name); err != nil {
		return err
	}
	if kind == jobs.HoldQueue || kind == jobs.HoldBatch {
		return nil
	}
	return fmt.Errorf("%q cannot be held; a queue or a batch can", kind)
}

// Put stores a hold, also over another one.
func (s Holds) Put(ctx context.Context, h jobs.Hold) error {
	body, err := json.Marshal(h)
	if err == nil {
		err = s.conn.Publish(ctx, &nats.Msg{Subject: key(h), Data: body})
	}
	if err != nil {
		return fmt.Errorf("hold %s %s: %w", h.Kind, h.Name, err)
	}
	return nil
}

// Remove removes a hold. There need be none.
func (s Holds) Remove(ctx context.Context, kind jobs.HoldKind, name string) error {
	if err := s.conn.Purge(ctx, subject.KVStream(subject.Settings), key(jobs.Hold{Kind: kind, Name: name})); err != nil {
		return fmt.Errorf("release %s %s: %w", kind, name, err)
	}
	return nil
}

// Get returns the hold on a queue or a batch; nil if none is in force.
func (s Holds) Get(ctx context.Context, kind jobs.HoldKind, name string) (*jobs.Hold, error) {
	m, err := s.conn.Last(ctx, subject.KVStream(subject.Settings), key(jobs.Hold{Kind: kind, Name: name}))
	if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
		return nil, nil
	}
	var h jobs.Hold
	if err == nil {
		err = json.Unmarshal(m.Data, &h)
	}
	if err != nil {
		return nil, fmt.Errorf("hold on %s %s: %w", kind, name, err)
	}
	if h.Over(time.Now()) {
		return nil, nil
	}
	return &h, nil
}

// List returns the holds that are in force.
func (s Holds) List(ctx context.Context) ([]jobs.Hold, error) {
	last := map[string]jobs.Hold{} // the bucket keeps a history
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Settings), Subject: subject.Key(subject.Settings, "hold.*.*")}) {
		if err != nil {
			return nil, fmt.Errorf("list holds: %w", err)
		}
		var h jobs.Hold
		if json.Unmarshal(m.Data, &h) == nil && !m.Gone() && strings.HasSuffix(m.Subject, key(h)) {
			last[m.Subject] = h
		}
	}
	var list []jobs.Hold
	for _, h := range last {
		if !h.Over(time.Now()) {
			list = append(list, h)
		}
	}
	return list, nil
}

// key is where a hold is stored.
func key(h jobs.Hold) string {
	return subject.Key(subject.Settings, "hold."+string(h.Kind)+"."+h.Name)
}

// forever is until when a queue is paused if the request names no time.
var forever = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// End is until when the broker pauses a held queue.
func End(h jobs.Hold) time.Time {
	if h.Until != nil {
		return *h.Until
	}
	return forever
}

// Words says for people what is held.
func Words(h jobs.Hold) string { return string(h.Kind) + " " + h.Name + " is paused" }

// Parks reports whether one of the holds parks a job.
func Parks(holds []jobs.Hold, rec jobs.Record) bool {
	return slices.ContainsFunc(holds, func(h jobs.Hold) bool { return h.Kind == jobs.HoldBatch && h.Name == rec.Batch && !h.Cancel })
}

// Pauses reports whether one of the holds is on the queue or the batch of a job.
func Pauses(holds []jobs.Hold, rec jobs.Record) bool {
	return Parks(holds, rec) || slices.ContainsFunc(holds, func(h jobs.Hold) bool { return h.Kind == jobs.HoldQueue && h.Name == rec.Queue })
}
