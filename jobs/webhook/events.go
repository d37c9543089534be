package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// A Head is what the headers of a stored event tell.
type Head struct {
	Place
	Kind jobs.Kind // empty: not of the job itself, so that no webhook gets it
	Job  string
}

// forgotten is after how long without a reader the broker ends a reading.
const forgotten = time.Minute

// Heads returns the heads of the events behind a position, those that are stored and
// those that come, until ctx ends or the broker cannot go on. It reads headers only: what
// agents say is most of the log, and no webhook gets it.
func (s *Store) Heads(ctx context.Context, behind uint64) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		consumer, err := s.conn.JS.OrderedConsumer(ctx, subject.Events, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{s.names.SessionEvents(s.tenant, "*")}, HeadersOnly: true, InactiveThreshold: forgotten,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: behind + 1,
		})
		if err != nil {
			yield(Head{}, fmt.Errorf("read the log of events: %w", err))
			return
		}
		messages, err := consumer.Messages()
		if err != nil {
			yield(Head{}, fmt.Errorf("read the log of events: %w", err))
			return
		}
		defer messages.Stop()
		for {
			m, err := messages.Next(jetstream.NextContext(ctx))
			if ctx.Err() != nil {
				return
			}
			head := Head{}
			if err == nil {
				head, err = headOf(m)
			}
			if err != nil {
				yield(Head{}, fmt.Errorf("read the log of events: %w", err))
				return
			}
			if !yield(head, nil) {
				return
			}
		}
	}
}

func headOf(m jetstream.Msg) (Head, error) {
	meta, err := m.Metadata()
	if err != nil {
		return Head{}, err
	}
	head := Head{Place: Place{meta.Sequence.Stream, meta.Timestamp.UTC()}, Job: m.Headers().Get("ce-subject")}
	kind, ours := strings.CutPrefix(m.Headers().Get("ce-type"), cloudevent.TypePrefix)
	if kind, version := strings.CutSuffix(kind, cloudevent.TypeSuffix); ours && version {
		head.Kind = jobs.Kind(kind)
	}
	return head, nil
}

// A Message is an event as it is sent: its id, and itself as a CloudEvent in JSON.
type Message struct {
	Event jobs.Event
	ID    string
	Body  []byte
	Trace jobs.Trace // that the event is part of
}

// Event returns the event at a position.
func (s *Store) Event(ctx context.Context, seq uint64) (Message, error) {
	m, err := s.conn.At(ctx, subject.Events, seq)
	if err != nil {
		return Message{}, err
	}
	var e jobs.Event
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return Message{}, fmt.Errorf("event at %d: %w", seq, errors.Join(jobs.ErrNotFound, err))
	}
	ce := cloudevent.OfJob(e, s.tenant, m.Data)
	if stored, err := cloudevent.Decode(m.Header, m.Data); err == nil && len(stored) == 1 {
		ce.Trace = stored[0].Trace
	}
	return message(ce, e)
}

// Test returns an event that tells nothing but that it arrives.
func (s *Store) Test(name string) (Message, error) {
	data, err := json.Marshal(map[string]string{"webhook": name})
	if err != nil {
		return Message{}, err
	}
	e := jobs.Event{Kind: "webhook.test", Time: time.Now().UTC()}
	ce := cloudevent.OfJob(e, s.tenant, data)
	ce.ID = "test/" + jobs.NewID()
	return message(ce, e)
}

func message(ce cloudevent.Event, e jobs.Event) (Message, error) {
	body, err := json.Marshal(ce)
	return Message{e, ce.ID, body, ce.Trace}, err
}
