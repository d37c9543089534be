package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/penstock-run/penstock/jobs/eventstream"
	"github.com/penstock-run/penstock/jobs/operation/route"
)

// maxEvent bounds an event of a stream. It fits a message of the broker.
const maxEvent = 64 << 20

// A wanted stream.
type wanted struct {
	call   call
	route  route.Route
	fields map[string]json.RawMessage
	last   string // id of the event to go on behind; empty: from the beginning
}

// stream gives the events of a stream to take, until that has enough. It reports whether nothing more is to come, or is wanted. The error of a stream
// that was cut is one that may pass.
func (w *web) stream(ctx context.Context, want wanted, take func(eventstream.Event) (bool, error)) (over bool, err error) {
	body, err := w.open(ctx, want.call, want.route, want.fields, func(h http.Header) {
		h.Set("Accept", "text/event-stream")
		if want.last != "" {
			h.Set("Last-Event-ID", want.last)
		}
	})
	if err != nil {
		return false, err
	}
	if body == nil {
		return true, nil // there is nothing behind the last event
	}
	defer body.Close() // it was read, or is not wanted any more
	events := eventstream.New(body, want.last, maxEvent)
	for {
		e, err := events.Next()
		if err != nil {
			return false, noAnswer(want.call, err)
		}
		if over, err := take(e); over || err != nil {
			return over, err
		}
	}
}
