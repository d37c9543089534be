// Package event has the payload of every kind of event: what stands in
// [jobs.Event.Data] as JSON; values only.
//
//	payload ──New──▶ jobs.Event ═══ session's log ═══▶ jobs.Event ──Decode──▶ payload
//
// A payload's type knows its kind, so writers cannot mix them up, and readers
// switch on the type. [Kinds] is the table of all kinds: schemas and the
// reference page are made from it. JSON names never change and fields are only
// added: logs of older versions decode, and readers ignore what they do not know.
package event

import (
	"encoding/json"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// A Payload is the data of an event.
type Payload interface {
	// EventKind is the kind of the events that have such a payload.
	EventKind() jobs.Kind
}

// New returns an event with its payload in place. The log that the event is
// appended to fills in seq, time and the names of job and session.
func New(p Payload) jobs.Event {
	data, err := json.Marshal(p)
	if err != nil {
		// Payloads are our own structs. The JSON of others that some of them
		// carry was valid when it was read.
		panic(fmt.Sprintf("payload of event %s: %v", p.EventKind(), err))
	}
	return jobs.Event{Kind: p.EventKind(), Data: data}
}

// An Event is one that this process has made: its payload is at hand, so its
// data is not read again.
type Event struct {
	jobs.Event
	Payload Payload `json:"-"`
}

// Make returns an event with its payload, written down and at hand.
func Make(p Payload) Event { return Event{New(p), p} }

// With returns the event with another payload, of the same kind.
func (e Event) With(p Payload) Event {
	e.Data, e.Payload = New(p).Data, p
	return e
}

// An UnknownKindError is about an event of a kind that a newer version has added.
type UnknownKindError struct{ Kind jobs.Kind }

func (e *UnknownKindError) Error() string {
	return fmt.Sprintf("event kind %q is not known", e.Kind)
}

// Decode returns the payload of an event as the type of its kind, a value and
// not a pointer. A kind that is not in the table is an [*UnknownKindError]. Where
// data does not fit the type, Decode returns as much as fits, and an error.
func Decode(e jobs.Event) (Payload, error) {
	row, ok := byKind[e.Kind]
	if !ok {
		return nil, &UnknownKindError{e.Kind}
	}
	p, err := row.decode(e.Data)
	if err != nil {
		return p, fmt.Errorf("data of event %s: %w", e.Kind, err)
	}
	return p, nil
}

// As returns the payload of an event that is of P's kind, as far as its data
// fits P. It is the zero P for events of other kinds.
func As[P Payload](e jobs.Event) P {
	var p P
	if e.Kind == p.EventKind() {
		p, _ = unmarshal[P](e.Data)
	}
	return p
}

// unmarshal reads data, which may be empty: an event without data has the zero
// payload.
func unmarshal[P Payload](data json.RawMessage) (p P, err error) {
	if len(data) > 0 {
		err = json.Unmarshal(data, &p)
	}
	return p, err
}
