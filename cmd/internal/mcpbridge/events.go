package mcpbridge

import (
	"cmp"
	"errors"
	"io"
	"time"

	"github.com/penstock-run/penstock/jobs/eventstream"
)

// The time before a broken stream is asked for again, unless the server says another one.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// events are the server-sent events of a stream, over the requests that it takes.
type events struct {
	last  string        // id of the last event; "": the server gives none
	retry time.Duration // as the server wants it; 0: it has not said
}

// wait is the time before the next try.
func (e *events) wait(tries int) time.Duration {
	if e.retry > 0 {
		return min(e.retry, mostPause)
	}
	return min(firstPause<<min(tries, 10), mostPause)
}

// read writes the messages of a stream until it ends, or one is enough.
func (e *events) read(from io.Reader, to *writer, enough func(message []byte) bool) (done bool, err error) {
	stream := eventstream.New(from, e.last, maxAnswer)
	for {
		got, err := stream.Next()
		e.last, e.retry = stream.LastID(), cmp.Or(stream.Retry(), e.retry)
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case errors.Is(err, eventstream.ErrTooLong):
			return false, errLong
		case err != nil:
			return false, err
		case len(got.Data) == 0:
			continue // it names an id only
		}
		if err := to.message(got.Data); err != nil {
			return false, err
		}
		if enough(got.Data) {
			return true, nil
		}
	}
}

var errLong = errors.New("it sent a message of more than 32 MiB")
