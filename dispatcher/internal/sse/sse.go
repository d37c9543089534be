// Package sse sends what comes one by one as server-sent events, to readers that may be
// slow, or cut, and go on where they were.
//
// A reader that does not take an event in time loses the connection, and continues behind
// the last event that it has when it asks again: nothing is skipped for it, and it costs
// no more than the events that are held for it here.
package sse

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

const (
	// Quiet is how long a stream may say nothing: proxies cut connections that do.
	Quiet = 15 * time.Second
	// Patience is how long a client may take to receive a part of an answer.
	Patience = 30 * time.Second
	// End is the name of the last event of a stream: nothing comes any more.
	End = "end"

	// reconnectAfter is how long a browser waits before it asks for a stream again.
	reconnectAfter = time.Second
	// ahead is how many events are held for a reader that is slower than the log. What
	// it has not taken after that stays in the log.
	ahead = 16
)

// An Event is one of a stream. The zero Data tells a reader no more than the ID, which it
// sends when it asks again.
type Event struct {
	ID   string // of one line
	Name string
	Data []byte // of one line or several
}

// append writes the event as a stream has it.
func (e Event) append(text []byte) []byte {
	text = fmt.Appendf(text, "id: %s\n", e.ID)
	if len(e.Data) == 0 {
		return append(text, '\n')
	}
	text = fmt.Appendf(text, "event: %s\n", e.Name)
	data := bytes.ReplaceAll(bytes.ReplaceAll(e.Data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		text = append(append(append(text, "data: "...), line...), '\n')
	}
	return append(text, '\n')
}

// A Stream sends events of one kind.
type Stream[T any] struct {
	Event           func(T) (Event, error) // makes what is sent
	Quiet, Patience time.Duration          // zero: the defaults
}

// A next is something to send, or the error that ends it.
type next[T any] struct {
	value T
	err   error
}

// Serve sends what comes until nothing does any more, which it tells, or until ctx ends
// or the reader is gone, which is an error.
func (s Stream[T]) Serve(ctx context.Context, w http.ResponseWriter, values iter.Seq2[T, error]) error {
	reading, stop := context.WithCancel(ctx)
	coming := make(chan next[T], ahead)
	go func() {
		defer close(coming)
		for value, err := range values {
			select {
			case coming <- next[T]{value, err}:
			case <-reading.Done():
				return
			}
		}
	}()
	defer func() { // the connection is free when nothing reads the values any more
		stop()
		for range coming {
		}
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that hold answers back
	return s.send(ctx, w, coming)
}

func (s Stream[T]) send(ctx context.Context, w http.ResponseWriter, coming <-chan next[T]) error {
	patience, quiet := s.Patience, s.Quiet
	if patience == 0 {
		patience = Patience
	}
	if quiet == 0 {
		quiet = Quiet
	}
	if err := Write(w, fmt.Appendf(nil, "retry: %d\n\n", reconnectAfter.Milliseconds()), true, patience); err != nil {
		return err
	}
	idle := time.NewTicker(quiet)
	defer idle.Stop()
	for {
		select {
		case next, more := <-coming:
			if !more && ctx.Err() != nil {
				return ctx.Err() // the client or the server ends, and not the stream
			}
			if !more {
				return Write(w, []byte("event: "+End+"\ndata: {}\n\n"), true, patience)
			}
			if next.err != nil {
				return next.err
			}
			event, err := s.Event(next.value)
			if err != nil {
				return err
			}
			if err := Write(w, event.append(nil), len(coming) == 0, patience); err != nil {
				return err
			}
			idle.Reset(quiet)
		case <-idle.C:
			if err := Write(w, []byte(": nothing new\n\n"), true, patience); err != nil {
				return err
			}
		}
	}
}

// Write sends a part of a long answer, which the client must take in time.
func Write(w http.ResponseWriter, text []byte, flush bool, patience time.Duration) error {
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil || !flush {
		return err
	}
	return c.Flush()
}

// After returns the number of the event that a reader goes on behind: from, which stands
// in its address, or, when it resumes a stream, a later one that it has seen since.
func After(r *http.Request, from uint64) (after uint64, resumed bool, err error) {
	header := r.Header.Get("Last-Event-ID")
	if header == "" {
		return from, false, nil
	}
	last, err := strconv.ParseUint(header, 10, 64)
	if err != nil {
		return 0, true, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "Last-Event-ID", Reason: "is not the number of an event"}}}
	}
	return max(from, last), true, nil
}
