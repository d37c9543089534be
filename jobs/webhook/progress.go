package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
)

// State returns how far a webhook has come. One that has not begun is at position 0.
func (s *Store) State(ctx context.Context, id string) (State, error) {
	m, err := s.conn.Last(ctx, bucket, subject.WebhookState(id))
	if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
		return State{Rev: m.Seq}, nil
	}
	var state State
	if err == nil {
		err = json.Unmarshal(m.Data, &state)
	}
	if err != nil {
		return State{}, fmt.Errorf("read the state of a webhook: %w", err)
	}
	state.Rev = m.Seq
	return state, nil
}

// SaveState stores how far a webhook has come, and returns it with its new revision. If
// another process has stored a state since, that one stays, unless this one says that
// the webhook is disabled.
func (s *Store) SaveState(ctx context.Context, id string, state State) (State, error) {
	data, err := json.Marshal(state)
	if err != nil {
		return state, err
	}
	for {
		rev, err := s.conn.Put(ctx, wire.Write{Stream: bucket, Subject: subject.WebhookState(id), Data: data, Expect: state.Rev})
		if err == nil {
			state.Rev = rev
			return state, nil
		}
		if !errors.Is(err, wire.ErrConflict) {
			return state, fmt.Errorf("store the state of a webhook: %w", err)
		}
		there, err := s.State(ctx, id)
		if err != nil {
			return state, err
		}
		if state.Rev = there.Rev; state.Disabled == nil {
			return state, nil // the next one is stored behind it
		}
	}
}

// Lines returns the events that a webhook has not delivered, by line.
func (s *Store) Lines(ctx context.Context, id string) (map[string]Line, error) {
	all := map[string]Line{}
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: bucket, Subject: subject.WebhookLine(id, "*")}) {
		if err != nil {
			return nil, fmt.Errorf("read what a webhook has not delivered: %w", err)
		}
		l, err := decodeLine(m)
		if err != nil {
			return nil, err
		}
		if delete(all, l.Name); len(l.Events) > 0 {
			all[l.Name] = l
		}
	}
	return all, nil
}

func decodeLine(m wire.Message) (Line, error) {
	l := Line{Name: m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], Rev: m.Seq}
	if m.Gone() {
		return l, nil
	}
	if err := json.Unmarshal(m.Data, &l); err != nil {
		return l, fmt.Errorf("line %s of a webhook: %w", l.Name, err)
	}
	return l, nil
}

// SaveLine stores a line, or removes it where it is empty, and returns it as it is stored.
// What another process has added to it since stays in it: that is the returned line, too.
func (s *Store) SaveLine(ctx context.Context, id string, l Line) (Line, error) {
	key := subject.WebhookLine(id, l.Name)
	for {
		w := wire.Write{Stream: bucket, Subject: key, Expect: l.Rev}
		if len(l.Events) == 0 {
			w.TTL, w.Header = markerFor, nats.Header{"KV-Operation": {"DEL"}}
		} else {
			data, err := json.Marshal(l)
			if err != nil {
				return l, err
			}
			w.Data = data
		}
		rev, err := s.conn.Put(ctx, w)
		if err == nil {
			l.Rev = rev
			return l, nil
		}
		if !errors.Is(err, wire.ErrConflict) {
			return l, fmt.Errorf("store what a webhook has not delivered: %w", err)
		}
		m, err := s.conn.Last(ctx, bucket, key)
		if errors.Is(err, jobs.ErrNotFound) {
			l.Rev = 0
			continue
		}
		there := Line{}
		if err == nil {
			there, err = decodeLine(m)
		}
		if err != nil {
			return l, err
		}
		l = l.merge(there)
	}
}

// Asked returns the events that clients want a webhook to deliver again.
func (s *Store) Asked(ctx context.Context, id string) ([]Place, error) {
	var all []Place
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: bucket, Subject: subject.WebhookAgain(id, "*")}) {
		if err != nil {
			return nil, fmt.Errorf("read what is to be delivered again: %w", err)
		}
		var place Place
		if !m.Gone() && json.Unmarshal(m.Data, &place) == nil {
			all = append(all, place)
		}
	}
	return all, nil
}

// TakeAsked forgets that an event was to be delivered again.
func (s *Store) TakeAsked(ctx context.Context, id string, seq uint64) error {
	return s.conn.Purge(ctx, bucket, subject.WebhookAgain(id, strconv.FormatUint(seq, 10)))
}

// Append keeps what came of an attempt.
func (s *Store) Append(ctx context.Context, id string, d operation.Delivery) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := s.conn.Publish(ctx, &nats.Msg{Subject: s.names.Delivered(id), Data: data}); err != nil {
		return fmt.Errorf("keep an attempt to deliver %s: %w", d.ID, err)
	}
	return nil
}

// Delivered returns the events that were delivered to a webhook or given up, as far as its
// attempts are kept.
func (s *Store) Delivered(ctx context.Context, id string) (map[uint64]bool, error) {
	done := map[uint64]bool{}
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: subject.Deliveries, Subject: s.names.Delivered(id)}) {
		if err != nil {
			return nil, fmt.Errorf("read the attempts of a webhook: %w", err)
		}
		var d operation.Delivery
		if json.Unmarshal(m.Data, &d) != nil || d.State == operation.DeliveryRetried {
			continue
		}
		if _, seq, ok := parseDelivery(d.ID); ok {
			done[seq] = true
		}
	}
	return done, nil
}

// Deliveries returns a page of the attempts that a request selects, of at most so many
// bytes.
func (s *Store) Deliveries(ctx context.Context, r operation.DeliveriesRequest, room int) (operation.DeliveryPage, error) {
	page := operation.DeliveryPage{Deliveries: []operation.Delivery{}, Next: r.After}
	filter := "*"
	if r.Name != "" {
		h, err := s.Hook(ctx, r.Name)
		if err != nil {
			return page, err
		}
		filter = h.ID
	}
	if r.Limit <= 0 || r.Limit > operation.MaxPage {
		r.Limit = operation.MaxPage
	}
	size := 1 << 10 // the rest of the answer
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: subject.Deliveries, Subject: s.names.Delivered(filter), From: r.After + 1}) {
		if err != nil {
			return page, fmt.Errorf("read the attempts of webhooks: %w", err)
		}
		var d operation.Delivery
		if json.Unmarshal(m.Data, &d) == nil && (r.Since == nil || !d.At.Before(*r.Since)) && (!r.Failed || d.State != operation.DeliveryDone) {
			if size += len(m.Data) + 1; len(page.Deliveries) > 0 && (size > room || len(page.Deliveries) >= r.Limit) {
				page.More = true
				return page, nil
			}
			page.Deliveries = append(page.Deliveries, d)
		}
		page.Next = m.Seq
	}
	return page, nil
}
