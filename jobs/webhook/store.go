package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/part"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
)

// markerFor is how long the bucket remembers that something was removed: much longer
// than two that lead at once know of it.
const markerFor = time.Hour

var bucket = subject.KVStream(subject.Webhooks)

// Config says where the webhooks are. The zero value is an installation on one broker.
type Config struct {
	Prefix string // of every subject; default "penstock.v1"
	Tenant string // whose jobs are told of; default "default"
	// Role is the one of the connection's credential. The bucket is the operator's; all
	// other roles are refused.
	Role     jobs.Role
	Replicas int // of the bucket and the stream; default is the installation's, or 1
	// Upgrade changes what exists to this configuration.
	Upgrade bool
}

// A Store keeps webhooks. Its methods may be called from any goroutine.
type Store struct {
	conn   *wire.Conn
	names  subject.Names
	tenant string
}

// Open creates bucket and stream, or binds to those that are there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	conn, names, err := part.Open(ctx, nc, part.Config{
		Prefix: cfg.Prefix, Role: cfg.Role, Replicas: cfg.Replicas, Upgrade: cfg.Upgrade, Assets: assets,
	})
	if err != nil {
		return nil, err
	}
	return &Store{conn, names, cmp.Or(cfg.Tenant, "default")}, nil
}

// Assets returns bucket and stream, for callers that compare them. If cfg names no
// replicas, they take those of the installation.
func Assets(cfg Config, has wire.Installed) ([]wire.Asset, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	return assets(names, cmp.Or(cfg.Replicas, has.Replicas)), nil
}

func assets(names subject.Names, replicas int) []wire.Asset {
	return []wire.Asset{
		wire.BucketAsset(jetstream.KeyValueConfig{
			Bucket: subject.Webhooks, MaxValueSize: 64 << 10, Replicas: replicas,
			// Under a subject that no role imports. What the leader stores is not repeated.
			RePublish: &jetstream.RePublish{Source: subject.WebhookAsked, Destination: names.WebhooksAll(), HeadersOnly: true},
		}).Expiring(),
		// One subject for each webhook, so that the bound on messages is each one's own.
		wire.StreamAsset(jetstream.StreamConfig{
			Name: subject.Deliveries, Subjects: []string{names.Delivered("*")}, Replicas: replicas,
			MaxAge: attemptsFor, MaxMsgsPerSubject: attemptsKept, MaxMsgSize: 16 << 10, Discard: jetstream.DiscardOld,
		}),
	}
}

// Add keeps a webhook, which gets the events from now on. To add the same one again is
// to add it once, so that a request may be repeated whose answer got lost. Another one of
// that name is a [jobs.ErrExists], or is replaced if that is wanted.
func (s *Store) Add(ctx context.Context, want operation.WebhookRequest, by string, replace bool) (operation.Webhook, error) {
	now := time.Now().UTC()
	last, err := s.conn.Last(ctx, subject.Events, s.names.SessionEvents(s.tenant, "*"))
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return operation.Webhook{}, fmt.Errorf("find the end of the events: %w", err)
	}
	wanted := Hook{
		ID: jobs.NewID(), Name: want.Name, URL: want.URL, Events: want.Events, Queue: want.Queue, Batch: want.Batch, Labels: want.Labels,
		Secret: Secret(want.Secret), From: last.Seq, Created: now, Changed: now, By: by,
	}
	if len(wanted.Events) == 0 {
		wanted.Events = []string{"job.*"}
	}
	for {
		there, err := s.hook(ctx, want.Name)
		absent := errors.Is(err, jobs.ErrNotFound)
		if err != nil && !absent {
			return operation.Webhook{}, err
		}
		hook, state := wanted, State{}
		switch {
		case absent:
			if err := s.room(ctx); err != nil {
				return operation.Webhook{}, err
			}
		case there.asWanted(wanted):
			state, err = s.State(ctx, there.ID)
			return there.public(state, now), err
		case !replace:
			return operation.Webhook{}, fmt.Errorf("webhook %s %w: replace it, or take another name", want.Name, jobs.ErrExists)
		default:
			if hook, state, err = s.replaced(ctx, there, wanted); err != nil {
				return operation.Webhook{}, err
			}
		}
		data, err := json.Marshal(hook)
		if err != nil {
			return operation.Webhook{}, err
		}
		_, err = s.conn.Put(ctx, wire.Write{Stream: bucket, Subject: subject.Webhook(hook.Name), Data: data, Expect: there.rev})
		switch {
		case err == nil:
			if there.ID != "" && there.ID != hook.ID {
				err = s.forget(ctx, there.ID)
			}
			return hook.public(state, now), err
		case !errors.Is(err, wire.ErrConflict):
			return operation.Webhook{}, fmt.Errorf("store webhook %s: %w", want.Name, err)
		}
	}
}

// asWanted reports whether the webhook is what another request has made already.
func (h Hook) asWanted(wanted Hook) bool {
	text := func(h Hook) string {
		data, _ := json.Marshal([]any{h.URL, h.Events, h.Queue, h.Batch, h.Labels, h.Secret}) // of values only
		return string(data)
	}
	return text(h) == text(wanted)
}

// replaced returns the webhook that takes the place of another one. It goes on where that
// one stands, unless that was disabled: what happened since is not sent then.
func (s *Store) replaced(ctx context.Context, there, wanted Hook) (Hook, State, error) {
	if there.Secret != wanted.Secret {
		wanted.Previous = &Previous{there.Secret, wanted.Changed.Add(rotation)}
	} else {
		wanted.Previous = there.Previous
	}
	wanted.Created = there.Created
	state, err := s.State(ctx, there.ID)
	if err != nil || state.Disabled != nil {
		return wanted, State{}, err
	}
	wanted.ID, wanted.From = there.ID, there.From
	return wanted, state, nil
}

// room refuses a webhook beyond the most that a pool has. Two that are added at once may
// both be let in.
func (s *Store) room(ctx context.Context) error {
	all, err := s.Hooks(ctx)
	if err == nil && len(all) >= Most {
		err = invalid("name", fmt.Sprintf("there are %d webhooks, and no more are allowed: remove one", len(all)))
	}
	return err
}

func invalid(field, reason string) error {
	return &jobs.InvalidError{What: "webhook", Fields: []jobs.FieldError{{Field: field, Reason: reason}}}
}

// hook reads a webhook. The revision of one that is not there is that of its marker.
func (s *Store) hook(ctx context.Context, name string) (Hook, error) {
	m, err := s.conn.Last(ctx, bucket, subject.Webhook(name))
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return Hook{}, fmt.Errorf("read webhook %s: %w", name, err)
	}
	h, ok := decodeHook(m)
	if err != nil || !ok {
		return Hook{rev: m.Seq}, fmt.Errorf("webhook %q: %w", name, jobs.ErrNotFound)
	}
	return h, nil
}

// Hook returns a webhook by its name.
func (s *Store) Hook(ctx context.Context, name string) (Hook, error) {
	if jobs.CheckToken("name", name) != nil {
		return Hook{}, fmt.Errorf("webhook %q: %w", name, jobs.ErrNotFound)
	}
	return s.hook(ctx, name)
}

func decodeHook(m wire.Message) (Hook, bool) {
	var h Hook
	err := json.Unmarshal(m.Data, &h)
	h.rev = m.Seq
	return h, !m.Gone() && err == nil && h.ID != "" && m.Subject == subject.Webhook(h.Name)
}

// Hooks returns all webhooks by name.
func (s *Store) Hooks(ctx context.Context) ([]Hook, error) {
	all := map[string]Hook{}
	for m, err := range s.conn.Scan(ctx, wire.Range{Stream: bucket, Subject: subject.Webhook("*")}) {
		if err != nil {
			return nil, fmt.Errorf("read the webhooks: %w", err)
		}
		// One that changes during the scan is met again.
		h, ok := decodeHook(m)
		if delete(all, m.Subject); ok {
			all[m.Subject] = h
		}
	}
	list := make([]Hook, 0, len(all))
	for _, h := range all {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b Hook) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// List returns what clients are told of all webhooks, by name.
func (s *Store) List(ctx context.Context) ([]operation.Webhook, error) {
	hooks, err := s.Hooks(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]operation.Webhook, 0, len(hooks))
	for _, h := range hooks {
		state, err := s.State(ctx, h.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, h.public(state, time.Now()))
	}
	return list, nil
}

// Remove takes a webhook back, and forgets all about it.
func (s *Store) Remove(ctx context.Context, name string) error {
	for {
		h, err := s.Hook(ctx, name)
		if err != nil {
			return err
		}
		err = part.Remove(ctx, s.conn, wire.Write{Stream: bucket, Subject: subject.Webhook(name), Expect: h.rev, TTL: markerFor})
		switch {
		case err == nil:
			return s.forget(ctx, h.ID)
		case !errors.Is(err, wire.ErrConflict):
			return fmt.Errorf("remove webhook %s: %w", name, err)
		}
	}
}

// forget removes what is kept under the id of a webhook.
func (s *Store) forget(ctx context.Context, id string) error {
	err := errors.Join(
		s.conn.Purge(ctx, bucket, subject.WebhookState(id)),
		s.conn.Purge(ctx, bucket, subject.WebhookLine(id, "*")),
		s.conn.Purge(ctx, bucket, subject.WebhookAgain(id, "*")),
		s.conn.Purge(ctx, subject.Deliveries, s.names.Delivered(id)))
	if err != nil {
		return fmt.Errorf("forget what was left of a webhook: %w", err)
	}
	return nil
}

// Sweep forgets what was stored of webhooks that are not there any more: a leader that
// did not know so yet may have written it.
func (s *Store) Sweep(ctx context.Context) error {
	hooks, err := s.Hooks(ctx)
	if err != nil {
		return err
	}
	all, err := s.conn.Subjects(ctx, bucket, subject.Key(subject.Webhooks, ">"))
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for key := range all {
		for _, prefix := range []string{subject.WebhookState(""), subject.Key(subject.Webhooks, "line."), subject.Key(subject.Webhooks, "asked.again.")} {
			if rest, is := strings.CutPrefix(key, prefix); is {
				id, _, _ := strings.Cut(rest, ".")
				gone[id] = true
			}
		}
	}
	for _, h := range hooks {
		delete(gone, h.ID)
	}
	for id := range gone {
		if err := s.forget(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Notify returns a channel that has a value after clients have asked for something.
func (s *Store) Notify() (<-chan struct{}, func(), error) {
	return s.conn.Notify(s.names.WebhooksAll())
}

// Redeliver asks for an event to be delivered again. The leader does so.
func (s *Store) Redeliver(ctx context.Context, id string) error {
	name, seq, ok := parseDelivery(id)
	if !ok {
		return fmt.Errorf("delivery %q: %w", id, jobs.ErrNotFound)
	}
	if seq == 0 {
		return invalid("id", id+" was a test: send another one")
	}
	h, err := s.Hook(ctx, name)
	if err != nil {
		return fmt.Errorf("delivery %s: %w", id, err)
	}
	state, err := s.State(ctx, h.ID)
	if err != nil {
		return err
	}
	if state.Disabled != nil {
		return invalid("id", "webhook "+name+" is disabled: replace it first")
	}
	e, err := s.Event(ctx, seq)
	if err == nil && !h.Selects(e.Event.Kind) {
		err = jobs.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("event of delivery %s: %w", id, err)
	}
	data, err := json.Marshal(Place{seq, e.Event.Time})
	if err != nil {
		return err
	}
	err = s.conn.Publish(ctx, &nats.Msg{Subject: subject.WebhookAgain(h.ID, strconv.FormatUint(seq, 10)), Data: data})
	if err != nil {
		return fmt.Errorf("ask for delivery %s: %w", id, err)
	}
	return nil
}
